#pragma once
// What a reader of JSON says about text that is none, in words of our own: the place (a byte counted from 1,
// its line and column), what stands there, and what was expected. For those who parse with nlohmann's reader.
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/base/json.h"

namespace lockstep {

enum class JsonFault : unsigned char { kSyntax, kNumberTooLarge };

// Of what parse_error() hears; `token` is what was read last.
std::string json_fault(std::string_view text, size_t position, std::string_view token, JsonFault fault);
template <class Exception>
std::string json_fault(std::string_view text, size_t position, std::string_view token,
                       const Exception& /*why*/) {
  constexpr bool is_range = std::is_same_v<Exception, Json::out_of_range>;
  return json_fault(text, position, token, is_range ? JsonFault::kNumberTooLarge : JsonFault::kSyntax);
}

}  // namespace lockstep
