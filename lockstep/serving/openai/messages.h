#pragma once
// The "messages" of a chat, checked against OpenAI's schema and brought into the form that chat templates
// expect.
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::openai {

inline constexpr size_t kMaxMessages = 16384;
inline constexpr size_t kMaxToolCalls = 256;  // of one message

// What comes back, message by message:
//   role: "developer" becomes "system", which is what templates know
//   content: the text parts of an array joined without anything between; null stays null, absent becomes null
//   tool_calls: {"type", "id", "function": {"name", "arguments"}}; an empty list is left out
//   reasoning_content, tool_call_id, name: as they are
// Results of tools are put in the order of the calls that they answer, because most templates print no ids.
// Errors name the place, such as messages[2].content.
Result<Json> read_messages(const Json& messages);

}  // namespace lockstep::serving::openai
