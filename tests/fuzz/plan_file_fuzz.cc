// A plan file that somebody wrote or edited: it is refused with words, or checked to the end, whatever it
// says.
#include <string_view>

#include "lockstep/planning/plan_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size > 1 << 16) return 0;
  const auto json =
      parse_json(std::string_view(reinterpret_cast<const char*>(data), size), {.max_depth = 32});
  if (!json) return 0;
  const auto report = planning::check_plan_file(*json, {.max_ranks = 8, .max_rows = 512});
  if (!report) {
    if (report.error().message.empty()) __builtin_trap();
    return 0;
  }
  for (const planning::FoundInFile& found : report->found)
    if (to_text(found.violation).empty() || found.violation.says.empty()) __builtin_trap();
  return 0;
}
