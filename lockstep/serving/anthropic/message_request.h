#pragma once
// POST /v1/messages: the request's body, checked and brought into the form of a chat.
#include "lockstep/serving/openai/chat_request.h"

namespace lockstep::serving::anthropic {

enum class Purpose : unsigned char { kAnswer, kCount };  // only an answer needs max_tokens

// Errors name the field as the client wrote it: "messages[1].content[0].type", "tools[0].input_schema".
Result<openai::ChatRequest> read_message_request(const Json& body, Purpose purpose,
                                                 const runtime::ModelInfo& model);

}  // namespace lockstep::serving::anthropic
