#include "lockstep/serving/openai/chat_request.h"

#include <algorithm>
#include <limits>

#include "lockstep/serving/openai/messages.h"

namespace lockstep::serving::openai {
namespace {

constexpr int kMaxTopLogprobs = 20;  // OpenAI's limit
constexpr std::string_view kOwnVariables[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                              "eos_token"};

constexpr size_t kMaxTemplateKwargs = 256;

void read_template_kwargs(Fields& fields, ChatRequest& request) {
  if (const Json* kwargs = fields.object("chat_template_kwargs")) {
    if (kwargs->size() > kMaxTemplateKwargs)
      return fields.refuse("chat_template_kwargs", fmt::format("holds {} variables; at most {} are allowed",
                                                               kwargs->size(), kMaxTemplateKwargs));
    for (const auto& [key, value] : kwargs->items())
      if (std::find(std::begin(kOwnVariables), std::end(kOwnVariables), key) != std::end(kOwnVariables))
        fields.refuse("chat_template_kwargs." + key,
                      "cannot be set here: the request's other fields decide it");
    request.template_kwargs = *kwargs;
  }
  const auto effort = fields.text("reasoning_effort");
  if (!effort) return;
  const auto set = [&](const char* key, Json value) {
    if (!request.template_kwargs.contains(key)) request.template_kwargs[key] = std::move(value);
  };
  set("reasoning_effort", *effort);
  if (*effort == "none") set("enable_thinking", false), set("thinking", false);
}

void read_prompt(Fields& fields, const Json& body, ChatRequest& request) {
  request.model = fields.text("model");
  const Json* messages = fields.find("messages");
  if (messages == nullptr) {
    if (body.is_object()) fields.refuse("messages", "is missing");
  } else if (auto read = read_messages(*messages)) {
    request.messages = std::move(*read);
  } else {
    fields.complain(read.error());
  }
  request.tools = read_tools(fields);
  read_template_kwargs(fields, request);
  request.add_generation_prompt = fields.flag("add_generation_prompt").value_or(true);
  if (fields.flag("continue_final_message").value_or(false))
    fields.refuse("continue_final_message",
                  "is not supported; leave it out or use /v1/completions with the text so far");
}

void read_limits(Fields& fields, GenerationOptions& options) {
  constexpr int kMax = std::numeric_limits<int>::max();
  for (const char* key : {"max_tokens", "max_completion_tokens"})  // the newer name wins
    if (const auto tokens = fields.integer(key, 1, kMax)) options.max_tokens = static_cast<int>(*tokens);
}

void read_logprobs(Fields& fields, GenerationOptions& options) {
  const bool wanted = fields.flag("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !wanted) fields.refuse("top_logprobs", "may be given only with \"logprobs\": true");
  if (wanted) options.num_top_logprobs = static_cast<int>(top.value_or(0));
}

}  // namespace

Result<ChatRequest> read_chat_request(const Json& body, const runtime::ModelInfo& model) {
  ChatRequest request;
  Fields fields(body);
  read_prompt(fields, body, request);
  request.options = read_generation_options(fields, model);
  read_limits(fields, request.options);
  read_logprobs(fields, request.options);
  refuse_unsupported(fields);
  if (!fields.ok()) return fields.status().error();
  return request;
}

Result<ChatRequest> read_chat_prompt(const Json& body) {
  ChatRequest request;
  Fields fields(body);
  read_prompt(fields, body, request);
  if (!fields.ok()) return fields.status().error();
  return request;
}

}  // namespace lockstep::serving::openai
