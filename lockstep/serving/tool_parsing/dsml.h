#pragma once
// Calls as DeepSeek-V3.2 writes them: <｜DSML｜function_calls> around one <｜DSML｜invoke> for each. Private
// to tool_parsing.
#include <memory>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::serving::tool_parsing {

std::vector<Marker> dsml_markers();
std::unique_ptr<ToolParser> make_dsml_parser(const Json& tools);

}  // namespace lockstep::serving::tool_parsing
