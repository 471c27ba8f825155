#pragma once
// POST /v1/chat/completions: the request's body, checked and with defaults filled in.
#include <optional>
#include <string>

#include "lockstep/serving/openai/generation_options.h"
#include "lockstep/serving/openai/tools.h"

namespace lockstep::serving::openai {

struct ChatRequest {
  std::optional<std::string> model;
  Json messages;  // as read_messages() gives them
  ToolOptions tools;
  Json template_kwargs = Json::object();  // further variables of the template, such as enable_thinking
  bool add_generation_prompt = true;
  GenerationOptions options;
};

// Fields that are unknown are ignored; known ones of a wrong type or range are errors that name them.
Result<ChatRequest> read_chat_request(const Json& body, const runtime::ModelInfo& model);

// Of /tokenize: only what decides the prompt.
Result<ChatRequest> read_chat_prompt(const Json& body);

}  // namespace lockstep::serving::openai
