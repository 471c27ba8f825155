// Any bytes either parse within the limits and print back to the same document, or are refused with a
// message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = lockstep::parse_json(text, {.max_bytes = 1 << 16, .max_depth = 32});
  if (!parsed) {
    if (parsed.error().message.empty()) std::abort();
    return 0;
  }
  const std::string printed = lockstep::to_text(*parsed);
  const auto again = lockstep::parse_json(printed, {.max_bytes = 1 << 20, .max_depth = 32});
  if (!again || lockstep::to_text(*again) != printed) std::abort();
  return 0;
}
