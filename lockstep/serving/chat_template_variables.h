#pragma once
// What a template is rendered with: a chat, and what the model's folder says of its special tokens.
#include <filesystem>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving {

struct TemplateVariables {
  Json values = Json::object();  // bos_token, eos_token, ... as templates call them
  bool add_bos_token = false;    // before prompts that no template rendered
};

struct ChatInput {
  Json messages;  // OpenAI's, or as templates expect them: a call's arguments are an object or its text
  Json tools;     // an array of tools in OpenAI's form, or null
  Json template_kwargs = Json::object();  // further variables of the template
  bool add_generation_prompt = true;
};

// As transformers' apply_chat_template does: what is not given is None and not undefined.
Json variables_for(const Json& special_tokens, const ChatInput& input);

Result<TemplateVariables> load_template_variables(const std::filesystem::path& directory);

}  // namespace lockstep::serving
