#pragma once
// The escapes of Python's string literals.
#include <string>
#include <string_view>

namespace lockstep::serving::jinja {

// Unknown escapes stay as they are. Throws Failure for a truncated one, for a lone surrogate and for \N{...}.
std::string unescape(std::string_view literal, int line);

}  // namespace lockstep::serving::jinja
