#pragma once
// JSON for every room: an ordered document (chat templates and plans print keys in their order) and a parser
// for hostile text with limits. nlohmann's own parser has no depth limit and lets a duplicate key win
// silently; this one refuses both.
#include <nlohmann/json.hpp>

#include <string_view>

#include "lockstep/base/check.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  int max_depth = 128;
};

// The error says the byte offset at which the text stops being JSON, or which limit it broke.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Compact text, invalid UTF-8 replaced by U+FFFD (nlohmann's dump() would throw).
std::string to_text(const Json& value);

}  // namespace lockstep
