// Any JSON as a schema is refused with a message, or becomes one that is enforced to the letter: that one is
// accepted again and stays as it is. Any text as a pattern is checked without a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/json.h"
#include "lockstep/serving/constraints/regex_check.h"
#include "lockstep/serving/constraints/schema_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const Status checked = serving::constraints::check_regex(bytes, "regex");
      !checked && checked.error().message.empty())
    std::abort();
  const auto schema = parse_json(bytes);
  if (!schema) return 0;
  const auto enforceable = serving::constraints::enforceable_schema(*schema, "schema");
  if (!enforceable) {
    if (enforceable.error().message.empty()) std::abort();
    return 0;
  }
  const auto again = serving::constraints::enforceable_schema(*enforceable, "schema");
  if (!again || *again != *enforceable) std::abort();
  return 0;
}
