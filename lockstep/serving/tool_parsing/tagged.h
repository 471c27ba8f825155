#pragma once
// Calls between <tool_call> and </tool_call>: a JSON object with "name" and "arguments" (Qwen3, Hermes), or
// <function=NAME> with a <parameter=KEY> for each value (Qwen3.5, Qwen3-Coder); which of the two is seen in
// the text itself. Or a name with <arg_key> and <arg_value> (GLM). Private to tool_parsing.
#include <memory>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::serving::tool_parsing {

std::vector<Marker> tagged_markers();
enum class Tagged : unsigned char { kJsonOrFunction, kGlm };
std::unique_ptr<ToolParser> make_tagged_parser(const Json& tools, Tagged inside);

}  // namespace lockstep::serving::tool_parsing
