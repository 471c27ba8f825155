#pragma once
// The items of a conversation as /v1/responses has them, as the messages of a chat.
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::openai {

// A conversation that was read.
struct ReadItems {
  Json messages;  // of a chat
  Json kept;      // the items with what was read of them and nothing else
};

// Messages, function_call, function_call_output and reasoning; what belongs to one turn of the assistant
// becomes one message. Other items (files, images, tools that a server would run) are refused by name.
// `earlier` comes first: kept items of the response before. `field` is how errors name the list `items`:
// "input".
Result<ReadItems> read_items(const Json& earlier, const Json& items, std::string_view field);

}  // namespace lockstep::serving::openai
