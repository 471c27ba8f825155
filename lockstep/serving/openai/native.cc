#include "lockstep/serving/openai/native.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/serving/openai/api_error.h"
#include "lockstep/serving/openai/event_stream.h"

namespace lockstep::serving::openai {
namespace {

constexpr int kDefaultNewTokens = 128;  // SGLang's

// (SGLang's name, the completion's)
constexpr std::pair<std::string_view, std::string_view> kParams[] = {
    {"max_new_tokens", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"sampling_seed", "seed"},
    {"temperature", "temperature"},
    {"top_p", "top_p"},
    {"top_k", "top_k"},
    {"min_p", "min_p"},
    {"frequency_penalty", "frequency_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"repetition_penalty", "repetition_penalty"},
    {"stop", "stop"},
    {"stop_token_ids", "stop_token_ids"},
    {"ignore_eos", "ignore_eos"},
    {"n", "n"},
    {"logit_bias", "logit_bias"},
    {"json_schema", "json_schema"},
    {"regex", "regex"},
    {"ebnf", "ebnf"},
};

// What is on anyway, or says nothing here.
constexpr std::pair<std::string_view, bool> kFixed[] = {
    {"skip_special_tokens", true}, {"spaces_between_special_tokens", true}, {"no_stop_trim", false}};

void copy_params(Fields& fields, Json& completion) {
  completion["max_tokens"] = kDefaultNewTokens;
  const Json* params = fields.object("sampling_params");
  if (params == nullptr) return;
  Fields inner(*params, "sampling_params");
  for (const auto& [key, value] : params->items()) {
    const auto same = [&](const auto& entry) { return entry.first == key; };
    const auto* param = std::find_if(std::begin(kParams), std::end(kParams), same);
    const auto* fixed = std::find_if(std::begin(kFixed), std::end(kFixed), same);
    if (param != std::end(kParams)) {
      completion[std::string(param->second)] = value;
    } else if (fixed == std::end(kFixed)) {
      inner.refuse(key, "is not known");
    } else if (!value.is_null() && value != fixed->second) {
      inner.refuse(key, fmt::format("must be {}", fixed->second));
    }
  }
  if (!inner.ok()) fields.complain(inner.status().error());
}

// The error with its field as the client wrote it.
Error in_clients_words(Error error, const std::string& prompt_field) {
  std::vector<std::string> own;
  own.reserve(std::size(kParams));  // so that the views stay
  std::vector<FieldName> names = {{"prompt", prompt_field}};
  for (const auto& [native, name] : kParams)
    names.push_back({name, own.emplace_back("sampling_params." + std::string(native))});
  return renamed(std::move(error), names);
}

Json meta_info(const ReplyHead& head, int choice_idx, int num_choices, int64_t prompt_tokens,
               int64_t num_tokens, int64_t cached_tokens) {
  return {{"id", num_choices == 1 ? head.id : fmt::format("{}-{}", head.id, choice_idx)},
          {"finish_reason", nullptr},
          {"prompt_tokens", prompt_tokens},
          {"completion_tokens", num_tokens},
          {"cached_tokens", cached_tokens}};
}

Json finish_json(const ChoiceEnd& end) {
  if (end.finish == ChoiceFinish::kLength) return {{"type", "length"}, {"length", end.num_tokens}};
  if (end.finish == ChoiceFinish::kAborted)
    return {{"type", "abort"}, {"message", "aborted by /abort_request"}};
  return {{"type", "stop"}};
}

class NativeAnswer : public GenerationListener {
 public:
  NativeAnswer(ReplyContext context, const std::vector<int64_t>& prompt_tokens, Answers answers)
      : context_(std::move(context)), answers_(answers) {
    for (size_t i = 0; i < prompt_tokens.size(); ++i)
      choices_.push_back({{"text", ""},
                          {"meta_info", meta_info(context_.head, static_cast<int>(i), context_.num_choices,
                                                  prompt_tokens[i], 0, 0)}});
  }

  void started() override {}
  void on_deltas(int choice_idx, Deltas deltas, const ChoiceSoFar& /*so_far*/) override {
    auto& text = choices_[static_cast<size_t>(choice_idx)]["text"].get_ref<std::string&>();
    for (const Delta& delta : deltas) text += delta.text.text();
  }
  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    Json& meta = choices_[static_cast<size_t>(choice_idx)]["meta_info"];
    meta["finish_reason"] = finish_json(end);
    meta["completion_tokens"] = end.num_tokens;
    meta["cached_tokens"] = end.num_cached_tokens;
  }
  void finished() override {
    const Json body = answers_ == Answers::kList ? Json(choices_) : choices_[0];
    context_.responder->send({.body = to_text(body)});
  }
  void failed(const Error& error) override { context_.responder->send(error_response(api_error(error))); }

 private:
  ReplyContext context_;
  const Answers answers_;
  std::vector<Json> choices_;
};

class NativeStream : public GenerationListener {
 public:
  NativeStream(ReplyContext context, std::vector<int64_t> prompt_tokens)
      : context_(std::move(context)),
        prompt_tokens_(std::move(prompt_tokens)),
        texts_(prompt_tokens_.size()) {}

  void started() override {
    context_.responder->start_stream(200, "text/event-stream; charset=utf-8",
                                     {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
    started_ = true;
  }
  void on_deltas(int choice_idx, Deltas deltas, const ChoiceSoFar& so_far) override {
    for (const Delta& delta : deltas) texts_[static_cast<size_t>(choice_idx)] += delta.text.text();
    write(choice_idx, {.num_tokens = so_far.num_tokens}, nullptr);
  }
  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    write(choice_idx, end, finish_json(end));
  }
  void finished() override {
    context_.responder->write(std::string(kSseDone));
    context_.responder->finish();
  }
  void failed(const Error& error) override {
    if (!started_) return context_.responder->send(error_response(api_error(error)));
    context_.responder->note_failure(error.message);
    context_.responder->write(sse_event(to_text(error_json(api_error(error)))));
    finished();
  }

 private:
  // The cache's part is known at the end.
  void write(int choice_idx, const ChoiceEnd& so_far, Json finish) {
    const auto idx = static_cast<size_t>(choice_idx);
    Json meta = meta_info(context_.head, choice_idx, context_.num_choices, prompt_tokens_[idx],
                          so_far.num_tokens, so_far.num_cached_tokens);
    meta["finish_reason"] = std::move(finish);
    Json event = {{"text", texts_[idx]}, {"meta_info", std::move(meta)}};
    if (context_.num_choices > 1) event["index"] = choice_idx;
    context_.responder->write(sse_event(to_text(event)));
  }

  ReplyContext context_;
  const std::vector<int64_t> prompt_tokens_;
  std::vector<std::string> texts_;
  bool started_ = false;
};

}  // namespace

Result<NativeRequest> read_native_request(const Json& body, const runtime::ModelInfo& model) {
  Fields fields(body);
  NativeRequest request;
  Json completion = Json::object();
  const Json* text = fields.find("text");
  const Json* ids = fields.find("input_ids");
  if (fields.ok() && (text == nullptr) == (ids == nullptr))
    fields.refuse("text", "must be given, or 'input_ids' instead of it, and not both");
  if (text != nullptr && !text->is_string() && !text->is_array())
    fields.refuse("text", fmt::format("must be a string or an array of strings, not {}", kind_of(*text)));
  if (ids != nullptr && !ids->is_array())
    fields.refuse("input_ids", fmt::format("must be an array, not {}", kind_of(*ids)));
  copy_params(fields, completion);
  completion["stream"] = fields.flag("stream").value_or(false);
  if (fields.flag("return_logprob").value_or(false))
    fields.refuse("return_logprob", "is not supported here; /v1/completions has \"logprobs\"");
  for (const char* key :
       {"image_data", "audio_data", "video_data", "input_embeds", "lora_path", "return_hidden_states"})
    if (fields.has(key)) fields.refuse(key, "is not supported");
  request.id = read_name(fields, "rid");
  if (const Json* priority = fields.find("priority")) completion["priority"] = *priority;
  if (!fields.ok()) return fields.status().error();
  completion["prompt"] = text != nullptr ? *text : *ids;
  auto read = read_completion_request(completion, model);
  const std::string prompt_field = text != nullptr ? "text" : "input_ids";
  if (!read) return in_clients_words(read.error(), prompt_field);
  request.completion = std::move(*read);
  request.completion.prompt_field = prompt_field;
  const Json& prompt = completion["prompt"];
  const bool is_list = prompt.is_array() && !prompt.empty() && !prompt[0].is_number();
  if (is_list || request.completion.options.num_choices > 1) request.answers = Answers::kList;
  return request;
}

std::unique_ptr<GenerationListener> make_native_answer(ReplyContext context,
                                                       std::vector<int64_t> prompt_tokens, Answers answers) {
  return std::make_unique<NativeAnswer>(std::move(context), prompt_tokens, answers);
}

std::unique_ptr<GenerationListener> make_native_stream(ReplyContext context,
                                                       std::vector<int64_t> prompt_tokens) {
  return std::make_unique<NativeStream>(std::move(context), std::move(prompt_tokens));
}

}  // namespace lockstep::serving::openai
