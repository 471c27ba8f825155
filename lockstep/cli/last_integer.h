#pragma once
// The answer that a reply ends in.
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::cli {

// The last run of digits, with a minus sign that stands directly before it and after no digit or letter.
// Thousands' commas inside are skipped ("1,234"). Nothing when there is none or it does not fit.
std::optional<int64_t> last_integer(std::string_view text);

}  // namespace lockstep::cli
