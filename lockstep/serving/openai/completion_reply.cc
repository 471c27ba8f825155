#include "lockstep/serving/openai/completion_reply.h"

#include <utility>

#include "lockstep/serving/openai/api_error.h"
#include "lockstep/serving/openai/event_stream.h"
#include "lockstep/serving/openai/logprobs.h"

namespace lockstep::serving::openai {
namespace {

constexpr std::string_view kObject = "text_completion";

// Text only: no reasoning and no calls are looked for in completions.
class CompletionAnswer : public GenerationListener {
 public:
  CompletionAnswer(ReplyContext context, std::vector<std::string> echoes) : context_(std::move(context)) {
    usage_.prompt_tokens = context_.prompt_tokens;
    for (int i = 0; i < context_.num_choices; ++i)
      choices_.push_back({.logprobs = CompletionLogprobs(context_.num_top_logprobs)});
    for (size_t i = 0; i < echoes.size(); ++i) choices_.at(i).text = std::move(echoes[i]);
  }

  void started() override {}

  void on_prompt(int choice_idx, const std::vector<runtime::OutputToken>& prompt) override {
    choices_[static_cast<size_t>(choice_idx)].logprobs.add_prompt(*context_.tokenizer, prompt);
  }

  void on_deltas(int choice_idx, Deltas deltas, const ChoiceSoFar& so_far) override {
    Choice& choice = choices_[static_cast<size_t>(choice_idx)];
    for (const Delta& delta : deltas) {
      choice.text += delta.text.text();
      choice.logprobs.add(*context_.tokenizer, so_far.tokens, delta.text);
    }
  }

  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    choices_[static_cast<size_t>(choice_idx)].finish = end.finish;
    usage_.add(choice_idx / context_.choices_per_prompt, end);
  }

  void finished() override {
    Json answer = head_json(context_.head, kObject);
    answer["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      answer["choices"].push_back(
          {{"index", i},
           {"text", std::move(choice.text)},
           {"logprobs", context_.num_top_logprobs < 0 ? Json() : choice.logprobs.take()},
           {"finish_reason", name_of(choice.finish)}});
    }
    answer["usage"] = usage_json(usage_);
    context_.responder->send({.body = to_text(answer)});
  }

  void failed(const Error& error) override { context_.responder->send(error_response(api_error(error))); }

 private:
  struct Choice {
    std::string text;
    CompletionLogprobs logprobs;
    ChoiceFinish finish = ChoiceFinish::kStop;
  };
  ReplyContext context_;
  std::vector<Choice> choices_;
  Usage usage_;
};

class CompletionStream : public GenerationListener {
 public:
  CompletionStream(ReplyContext context, std::vector<std::string> echoes)
      : stream_(std::move(context), kObject),
        echoes_(std::move(echoes)),
        logprobs_(static_cast<size_t>(stream_.context().num_choices),
                  CompletionLogprobs(stream_.context().num_top_logprobs)) {}

  void started() override {
    stream_.start();
    if (stream_.context().num_top_logprobs >= 0) return;  // they come with their log probabilities
    for (size_t i = 0; i < echoes_.size(); ++i) stream_.choice(static_cast<int>(i), body(echoes_[i]), "", "");
  }

  void on_prompt(int choice_idx, const std::vector<runtime::OutputToken>& prompt) override {
    const auto idx = static_cast<size_t>(choice_idx);
    logprobs_[idx].add_prompt(*stream_.context().tokenizer, prompt);
    stream_.choice(choice_idx, body(echoes_.at(idx)), to_text(logprobs_[idx].take()), "");
  }

  void on_deltas(int choice_idx, Deltas deltas, const ChoiceSoFar& so_far) override {
    for (const Delta& delta : deltas) {
      std::string logprobs;
      if (stream_.context().num_top_logprobs >= 0) {
        CompletionLogprobs& of_choice = logprobs_[static_cast<size_t>(choice_idx)];
        of_choice.add(*stream_.context().tokenizer, so_far.tokens, delta.text);
        logprobs = to_text(of_choice.take());
      }
      stream_.choice(choice_idx, body(delta.text.text()), logprobs, "");
    }
  }

  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    stream_.add_usage(choice_idx, end);
    stream_.choice(choice_idx, body(""), "", name_of(end.finish));
  }

  void finished() override { stream_.finish(); }
  void failed(const Error& error) override { stream_.fail(error); }

 private:
  static std::string body(std::string_view text) {
    std::string out = "\"text\":";
    append_json_string(text, out);
    return out;
  }

  EventStream stream_;
  std::vector<std::string> echoes_;
  std::vector<CompletionLogprobs> logprobs_;
};

}  // namespace

std::unique_ptr<GenerationListener> make_completion_answer(ReplyContext context,
                                                           std::vector<std::string> echoes) {
  return std::make_unique<CompletionAnswer>(std::move(context), std::move(echoes));
}

std::unique_ptr<GenerationListener> make_completion_stream(ReplyContext context,
                                                           std::vector<std::string> echoes) {
  return std::make_unique<CompletionStream>(std::move(context), std::move(echoes));
}

}  // namespace lockstep::serving::openai
