#pragma once
// Calls as Llama 3.1 and later write them: the whole reply is {"name": ..., "parameters": ...}, perhaps
// behind
// <|python_tag|>, several with semicolons between. An object whose name is none of the request's functions is
// content. Private to tool_parsing.
#include <memory>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::serving::tool_parsing {

std::vector<Marker> llama_markers();
std::unique_ptr<ToolParser> make_llama_parser(const Json& tools);

}  // namespace lockstep::serving::tool_parsing
