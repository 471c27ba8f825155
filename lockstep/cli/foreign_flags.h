#pragma once
// Flags of SGLang that Lockstep does not have: each is refused with what to use instead, so that a launch
// line that was pasted says at once what of it cannot be.
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::cli {

// What to use instead of `flag` ("--deepep-mode"); nullopt where it is none of them.
std::optional<std::string_view> instead_of(std::string_view flag);

// The refusal of the first such flag in a command line; nullopt: there is none.
std::optional<std::string> foreign_flag_in(int argc, const char* const* argv);

}  // namespace lockstep::cli
