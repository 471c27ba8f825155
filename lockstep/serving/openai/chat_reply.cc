#include "lockstep/serving/openai/chat_reply.h"

#include <string>
#include <utility>
#include <vector>

#include "lockstep/serving/openai/api_error.h"
#include "lockstep/serving/openai/event_stream.h"
#include "lockstep/serving/openai/logprobs.h"

namespace lockstep::serving::openai {
namespace {

constexpr std::string_view kCallIdPrefix = "call_";

// {"content": [...], "refusal": null}, and beside it DeepSeek's list for the reasoning when there is one.
Json logprobs_json(Json content, Json reasoning) {
  Json logprobs = {{"content", std::move(content)}, {"refusal", nullptr}};
  if (!reasoning.is_null()) logprobs["reasoning_content"] = std::move(reasoning);
  return logprobs;
}

class ChatAnswer : public GenerationListener {
 public:
  explicit ChatAnswer(ReplyContext context) : context_(std::move(context)) {
    choices_.resize(static_cast<size_t>(context_.num_choices));
    usage_.prompt_tokens = context_.prompt_tokens;
  }

  void started() override {}

  void on_deltas(int choice_idx, Deltas deltas, const ChoiceSoFar& so_far) override {
    Choice& choice = choices_[static_cast<size_t>(choice_idx)];
    for (const Delta& delta : deltas) {
      switch (delta.kind) {
        case DeltaKind::kReasoning:
          add_text(delta, so_far.tokens, choice.reasoning, choice.reasoning_logprobs);
          break;
        case DeltaKind::kContent:
          add_text(delta, so_far.tokens, choice.content, choice.content_logprobs);
          break;
        case DeltaKind::kCallBegin:
          choice.calls.push_back({{"id", random_id(kCallIdPrefix)},
                                  {"type", "function"},
                                  {"function", {{"name", delta.text.text()}, {"arguments", ""}}}});
          break;
        case DeltaKind::kCallArguments:
          choice.calls.back()["function"]["arguments"].get_ref<std::string&>() += delta.text.text();
          break;
        case DeltaKind::kCallEnd:
          break;
      }
    }
  }

  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    choices_[static_cast<size_t>(choice_idx)].finish = end.finish;
    usage_.add(choice_idx / context_.choices_per_prompt, end);
  }

  void finished() override {
    Json answer = head_json(context_.head, "chat.completion");
    answer["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) answer["choices"].push_back(choice_json(i));
    answer["usage"] = usage_json(usage_);
    context_.responder->send({.body = to_text(answer)});
  }

  void failed(const Error& error) override { context_.responder->send(error_response(api_error(error))); }

 private:
  struct Choice {
    std::string reasoning, content;
    Json calls = Json::array();
    Json reasoning_logprobs = Json::array(), content_logprobs = Json::array();
    ChoiceFinish finish = ChoiceFinish::kStop;
  };

  void add_text(const Delta& delta, const std::vector<runtime::OutputToken>& tokens, std::string& text,
                Json& logprobs) {
    text += delta.text.text();
    for (Json& entry : chat_logprobs(*context_.tokenizer, tokens, delta.text))
      logprobs.push_back(std::move(entry));
  }

  Json choice_json(size_t choice_idx) {
    Choice& choice = choices_[choice_idx];
    Json message = {{"role", "assistant"}, {"content", std::move(choice.content)}, {"refusal", nullptr}};
    const bool has_reasoning = !choice.reasoning.empty();
    if (has_reasoning) message["reasoning_content"] = std::move(choice.reasoning);
    if (!choice.calls.empty()) {
      if (message["content"] == "") message["content"] = nullptr;
      message["tool_calls"] = std::move(choice.calls);
    }
    Json logprobs;
    if (context_.num_top_logprobs >= 0)
      logprobs = logprobs_json(std::move(choice.content_logprobs),
                               has_reasoning ? std::move(choice.reasoning_logprobs) : Json());
    return {{"index", choice_idx},
            {"message", std::move(message)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", name_of(choice.finish)}};
  }

  ReplyContext context_;
  std::vector<Choice> choices_;
  Usage usage_;
};

class ChatStream : public GenerationListener {
 public:
  explicit ChatStream(ReplyContext context) : stream_(std::move(context), "chat.completion.chunk") {}

  void started() override {
    stream_.start();
    for (int i = 0; i < stream_.context().num_choices; ++i)
      stream_.choice(i, R"("delta":{"role":"assistant","content":"","refusal":null})", "", "");
  }

  void on_deltas(int choice_idx, Deltas deltas, const ChoiceSoFar& so_far) override {
    for (const Delta& delta : deltas) {
      if (delta.kind == DeltaKind::kCallEnd) continue;
      std::string body = "\"delta\":{";
      append_delta(delta, body);
      body += '}';
      stream_.choice(choice_idx, body, logprobs_of(delta, so_far.tokens), "");
    }
  }

  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    stream_.add_usage(choice_idx, end);
    stream_.choice(choice_idx, R"("delta":{})", "", name_of(end.finish));
  }

  void finished() override { stream_.finish(); }
  void failed(const Error& error) override { stream_.fail(error); }

 private:
  static void append_delta(const Delta& delta, std::string& out) {
    switch (delta.kind) {
      case DeltaKind::kReasoning:
        out += "\"reasoning_content\":";
        break;
      case DeltaKind::kContent:
        out += "\"content\":";
        break;
      case DeltaKind::kCallBegin:
        out += fmt::format(
            "\"tool_calls\":[{{\"index\":{},\"id\":\"{}\",\"type\":\"function\",\"function\":{{\"name\":",
            delta.call_idx, random_id(kCallIdPrefix));
        append_json_string(delta.text.text(), out);
        out += ",\"arguments\":\"\"}}]";
        return;
      case DeltaKind::kCallArguments:
        out += fmt::format("\"tool_calls\":[{{\"index\":{},\"function\":{{\"arguments\":", delta.call_idx);
        append_json_string(delta.text.text(), out);
        out += "}}]";
        return;
      case DeltaKind::kCallEnd:
        return;
    }
    append_json_string(delta.text.text(), out);
  }

  std::string logprobs_of(const Delta& delta, const std::vector<runtime::OutputToken>& tokens) const {
    if (stream_.context().num_top_logprobs < 0) return {};
    if (delta.kind != DeltaKind::kContent && delta.kind != DeltaKind::kReasoning) return {};
    Json entries = chat_logprobs(*stream_.context().tokenizer, tokens, delta.text);
    return to_text(delta.kind == DeltaKind::kContent ? logprobs_json(std::move(entries), Json())
                                                     : logprobs_json(Json::array(), std::move(entries)));
  }

  EventStream stream_;
};

}  // namespace

std::unique_ptr<GenerationListener> make_chat_answer(ReplyContext context) {
  return std::make_unique<ChatAnswer>(std::move(context));
}

std::unique_ptr<GenerationListener> make_chat_stream(ReplyContext context) {
  return std::make_unique<ChatStream>(std::move(context));
}

}  // namespace lockstep::serving::openai
