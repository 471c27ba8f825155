#include "lockstep/cli/conversation.h"

#include <algorithm>

#include "lockstep/runtime/scheduler/request_check.h"

namespace lockstep::cli {
namespace {

std::string_view name_of(runtime::FinishReason reason) {
  switch (reason) {
    case runtime::FinishReason::kNotFinished:
      return "not_finished";
    case runtime::FinishReason::kStop:
      return "stop";
    case runtime::FinishReason::kLength:
      return "length";
    case runtime::FinishReason::kCancelled:
      return "cancelled";
    case runtime::FinishReason::kError:
      return "error";
  }
  return "?";
}

template <class T>
void set_if(T& value, const std::optional<T>& given) {
  if (given) value = *given;
}

void apply(const SamplingFlags& flags, runtime::SamplingParams& sampling) {
  set_if(sampling.temperature, flags.temperature);
  set_if(sampling.top_k, flags.top_k);
  set_if(sampling.top_p, flags.top_p);
  set_if(sampling.min_p, flags.min_p);
  set_if(sampling.repetition_penalty, flags.repetition_penalty);
  set_if(sampling.presence_penalty, flags.presence_penalty);
  set_if(sampling.frequency_penalty, flags.frequency_penalty);
  sampling.seed = flags.seed;
}

}  // namespace

Status check_flags(const SamplingFlags& flags) {
  runtime::SamplingParams sampling;
  apply(flags, sampling);
  const Status status = runtime::check_sampling(sampling, 1);
  if (status) return status;
  std::string flag = "--" + status.error().field;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return invalid_argument(flag, "{}: {}", flag, status.error().message);
}

Json user_message(std::string_view text) { return Json::array({Json{{"role", "user"}, {"content", text}}}); }

Result<Prompt> chat_prompt(const serving::ChatModel& model, const Json& messages, const Json& tools,
                           Thinking thinking) {
  serving::ChatInput input{.messages = messages, .tools = tools};
  if (thinking != Thinking::kTemplateDefault)
    input.template_kwargs["enable_thinking"] = thinking == Thinking::kOn;
  auto chat = model.encode_chat(input);
  if (!chat) return chat.error();
  serving::ReplyOptions reply = model.reply_options(*chat, tools);
  return Prompt{std::move(chat->ids), std::move(reply)};
}

Prompt text_prompt(const serving::ChatModel& model, std::string_view text) {
  return {model.encode_prompt(text), {}};
}

runtime::Request make_request(const Prompt& prompt, const SamplingFlags& flags,
                              const runtime::ModelInfo& model) {
  runtime::Request request{.prompt = prompt.ids,
                           .sampling = model.default_sampling,
                           .max_new_tokens = flags.max_tokens,
                           .ignore_eos = flags.ignore_eos};
  const int room = model.context_length - static_cast<int>(prompt.ids.size());
  if (room > 0) request.max_new_tokens = std::min(request.max_new_tokens, room);
  apply(flags, request.sampling);
  return request;
}

Reply::Reply(const serving::ChatModel& model, serving::ReplyOptions options)
    : reader_(model.tokenizer(), std::move(options)) {}

serving::Deltas Reply::push(int32_t token_id) { return keep(reader_.push(token_id)); }
serving::Deltas Reply::finish() { return keep(reader_.finish()); }

serving::Deltas Reply::keep(serving::Deltas deltas) {
  for (const serving::Delta& delta : deltas) {
    const std::string& text = delta.text.text();
    switch (delta.kind) {
      case serving::DeltaKind::kReasoning:
        reasoning_ += text;
        break;
      case serving::DeltaKind::kContent:
        content_ += text;
        break;
      case serving::DeltaKind::kCallBegin:
        calls_.push_back({text, ""});
        break;
      case serving::DeltaKind::kCallArguments:
        calls_.back().arguments += text;
        break;
      case serving::DeltaKind::kCallEnd:
        break;
    }
  }
  return deltas;
}

Json to_json(const Reply& reply, const Answer& answer, size_t num_prompt_tokens) {
  Json json = {{"content", reply.content()}};
  if (!reply.reasoning().empty()) json["reasoning_content"] = reply.reasoning();
  if (!reply.calls().empty()) {
    Json calls = Json::array();
    for (const ToolCall& call : reply.calls())
      calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
    json["tool_calls"] = std::move(calls);
  }
  // A reply that its own stop string ended was cancelled in the engine.
  const bool stopped = answer.finish == runtime::FinishReason::kCancelled && reply.ended();
  json["finish_reason"] = stopped ? "stop" : name_of(answer.finish);
  json["prompt_tokens"] = num_prompt_tokens;
  json["completion_tokens"] = answer.tokens.size();
  if (!answer.error.empty()) json["error"] = answer.error;
  return json;
}

}  // namespace lockstep::cli
