#pragma once
// Calls as DeepSeek-V3, R1 (a type, the name, a code fence) and V3.1 (name and bare JSON) write them. Which
// of the two is seen in the text itself. Private to tool_parsing.
#include <memory>
#include <vector>

#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::serving::tool_parsing {

std::vector<Marker> deepseek_markers();
std::unique_ptr<ToolParser> make_deepseek_parser();

}  // namespace lockstep::serving::tool_parsing
