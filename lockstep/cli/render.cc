// lockstep render: conversations to prompts, as transformers' apply_chat_template does it with the model's
// chat template.
#include <ctime>
#include <utility>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/json_lines.h"
#include "lockstep/cli/report.h"
#include "lockstep/serving/chat_template/chat_template.h"
#include "lockstep/serving/chat_template_variables.h"

namespace lockstep::cli {
namespace {

Result<serving::ChatInput> read_input(const Json& line) {
  serving::ChatInput input;
  for (const auto& [key, value] : line.items()) {
    if (key == "messages") {
      if (!value.is_array())
        return invalid_argument(key, "\"messages\" is {}: it must be an array", value.type_name());
      input.messages = value;
    } else if (key == "tools") {
      if (!value.is_array() && !value.is_null())
        return invalid_argument(key, "\"tools\" is {}: it must be an array or null", value.type_name());
      input.tools = value;
    } else if (key == "add_generation_prompt") {
      if (!value.is_boolean())
        return invalid_argument(key, "\"add_generation_prompt\" is {}: it must be true or false",
                                value.type_name());
      input.add_generation_prompt = value.get<bool>();
    } else if (key == "kwargs") {
      if (!value.is_object() && !value.is_null())
        return invalid_argument(key, "\"kwargs\" is {}: it must be an object", value.type_name());
      if (value.is_object()) input.template_kwargs = value;
    }
  }
  if (input.messages.is_null())
    return invalid_argument("messages", "\"messages\" is missing: it must be an array");
  return input;
}

}  // namespace

int run(const RenderCommand& command) {
  const auto chat_template = serving::ChatTemplate::load(command.model_directory, command.template_name);
  if (!chat_template) return report(chat_template.error());
  const auto variables = serving::load_template_variables(command.model_directory);
  if (!variables) return report(variables.error());
  return answer_lines(stdin, stdout, [&](const Json& line) -> Result<Json> {
    auto input = read_input(line);
    if (!input) return input.error();
    auto rendered =
        chat_template->render(serving::variables_for(variables->values, *input), {.now = std::time(nullptr)});
    if (!rendered) return rendered.error();
    return Json{{"rendered", std::move(*rendered)}};
  });
}

}  // namespace lockstep::cli
