#pragma once
// POST /v1/responses: the request's body, checked and brought into the form of a chat.
#include <optional>
#include <string>

#include "lockstep/serving/openai/chat_request.h"

namespace lockstep::serving::openai {

struct ResponsesRequest {
  ChatRequest chat;
  // The conversation as JSON: that of the previous response, then this request's input, of which only what
  // was read is kept.
  std::string items;
  Json shown;  // what the response repeats of its request, with what was left out filled in
  bool store = true;
};

// The id of an earlier response that the conversation goes on from.
Result<std::optional<std::string>> previous_response(const Json& body);

// `earlier`: the items of that response's conversation. Errors name the field as the client wrote it:
// "tools[0].name", "text.format.schema".
Result<ResponsesRequest> read_responses_request(const Json& body, const Json& earlier,
                                                const runtime::ModelInfo& model);

}  // namespace lockstep::serving::openai
