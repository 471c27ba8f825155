#pragma once
// The "tools" and "tool_choice" of a chat, checked against OpenAI's schema.
#include "lockstep/base/json.h"
#include "lockstep/serving/openai/fields.h"

namespace lockstep::serving::openai {

inline constexpr size_t kMaxTools = 512;

struct ToolOptions {
  Json tools;  // the request's array as it is; null when there are none or the model is to call none
  bool one_call_at_most = false;  // parallel_tool_calls: false, or one function is asked for by name
  enum class Demand : unsigned char { kMayCall, kMustCall } demand = Demand::kMayCall;
  Json callable;  // of the tools those that may be called; null as they are
};

// Complaints go to `fields` and name the place, such as tools[0].function.name. tool_choice is "none",
// "auto", "required", a function's name, or a list of allowed tools.
ToolOptions read_tools(Fields& fields);

}  // namespace lockstep::serving::openai
