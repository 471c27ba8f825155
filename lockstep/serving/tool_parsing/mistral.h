#pragma once
// Calls behind [TOOL_CALLS]: an array of JSON objects (Mixtral, Mistral), or a name, [ARGS] and bare JSON
// (later ones). Which of the two is seen in the text itself. Private to tool_parsing.
#include <memory>
#include <vector>

#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::serving::tool_parsing {

std::vector<Marker> mistral_markers();
std::unique_ptr<ToolParser> make_mistral_parser();

}  // namespace lockstep::serving::tool_parsing
