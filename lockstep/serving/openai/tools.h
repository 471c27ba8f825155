#pragma once
// The "tools" and "tool_choice" of a chat, checked against OpenAI's schema.
#include "lockstep/base/json.h"
#include "lockstep/serving/openai/fields.h"

namespace lockstep::serving::openai {

inline constexpr size_t kMaxTools = 512;

struct ToolOptions {
  Json tools;  // the request's array as it is; null when there are none or the model is to call none
  bool one_call_at_most = false;  // parallel_tool_calls: false
};

// Complaints go to `fields` and name the place, such as tools[0].function.name. tool_choice "required" and
// the name of a function are refused: nothing here can make a model call.
ToolOptions read_tools(Fields& fields);

}  // namespace lockstep::serving::openai
