#pragma once
// Calls of gpt-oss. Where they stand in the channels of a reply is found by reasoning/harmony.h; here their
// lexemes, a name and a text of arguments, become a call. Private to tool_parsing.
#include <memory>
#include <vector>

#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::serving::tool_parsing {

std::unique_ptr<ToolParser> make_harmony_parser();

}  // namespace lockstep::serving::tool_parsing
