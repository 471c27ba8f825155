#include "lockstep/serving/chat_template_variables.h"

#include "lockstep/base/file.h"
#include "lockstep/serving/chat_template/special_tokens.h"

namespace lockstep::serving {

Json variables_for(const Json& special_tokens, const ChatInput& input) {
  Json variables = special_tokens;
  variables["documents"] = nullptr;
  for (const auto& [key, value] : input.template_kwargs.items()) variables[key] = value;
  variables["messages"] = input.messages;
  variables["tools"] = input.tools;
  variables["add_generation_prompt"] = input.add_generation_prompt;
  return variables;
}

Result<TemplateVariables> load_template_variables(const std::filesystem::path& directory) {
  const auto tokens = load_special_tokens(directory);
  if (!tokens) return tokens.error();
  TemplateVariables variables{.values = tokens->variables()};
  const auto text = read_file(directory / "tokenizer_config.json");
  if (!text) return variables;  // a folder without one is fine
  const auto config = parse_json(*text);
  if (!config)
    return invalid_argument("tokenizer_config.json", "tokenizer_config.json: {}", config.error().message);
  if (config->is_object())
    if (const auto add = config->find("add_bos_token"); add != config->end() && add->is_boolean())
      variables.add_bos_token = add->get<bool>();
  return variables;
}

}  // namespace lockstep::serving
