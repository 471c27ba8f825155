#include "lockstep/serving/generation.h"

#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::serving {
namespace {

// Runs of deltas of the same kind become one.
void add_delta(Deltas& deltas, Delta delta) {
  if (!deltas.empty() && deltas.back().kind == delta.kind && deltas.back().call_idx == delta.call_idx) {
    deltas.back().text.append(std::move(delta.text));
  } else {
    deltas.push_back(std::move(delta));
  }
}

// The end of what the model wrote, as the API names it. A reply that was cut off inside a call is not
// "tool_calls".
ChoiceFinish finish_of(const ReplyParser& reply, ChoiceFinish by_engine) {
  if (reply.num_complete_calls() == 0 || by_engine == ChoiceFinish::kAborted) return by_engine;
  if (by_engine == ChoiceFinish::kLength && reply.num_complete_calls() < reply.num_calls()) return by_engine;
  return ChoiceFinish::kToolCalls;
}

}  // namespace

Generation::Generation(runtime::Engine& engine, const Tokenizer& tokenizer, std::vector<ChoiceInput> choices,
                       std::unique_ptr<GenerationListener> listener)
    : engine_(engine),
      tokenizer_(tokenizer),
      inputs_(std::move(choices)),
      listener_(std::move(listener)),
      choices_(inputs_.size()),
      num_open_(static_cast<int>(inputs_.size())) {}

void Generation::start(std::shared_ptr<TaskQueue> queue) {
  TaskQueue& tasks = *queue;
  tasks.push(
      [self = shared_from_this(), queue = std::move(queue)] { self->guarded([&] { self->submit(queue); }); });
}

void Generation::cancel(const std::weak_ptr<Generation>& generation, TaskQueue& queue) {
  queue.push([generation] {
    const auto self = generation.lock();
    if (self && !self->is_over_) self->cancel_rest();
  });
}

void Generation::give_up(const std::weak_ptr<Generation>& generation, TaskQueue& queue, const Error& error) {
  queue.push([generation, error] {
    const auto self = generation.lock();
    if (self && !self->is_over_) self->guarded([&] { self->fail(error); });
  });
}

void Generation::abort(const std::weak_ptr<Generation>& generation, TaskQueue& queue) {
  queue.push([generation] {
    const auto self = generation.lock();
    if (self && !self->is_over_) self->guarded([&] { self->abort_rest(); });
  });
}

void Generation::submit(const std::shared_ptr<TaskQueue>& queue) {
  if (is_over_) return;
  make_readers();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Choice& choice = choices_[i];
    auto id = engine_.submit(std::move(inputs_[i].request), [self = shared_from_this(), queue,
                                                             choice_idx = static_cast<int>(i)](
                                                                const runtime::Event& event) {
      queue->push([self, choice_idx, event] { self->guarded([&] { self->on_event(choice_idx, event); }); });
    });
    if (!id) return fail(id.error());
    choice.id = *id;
  }
  inputs_.clear();
  listener_->started();
}

void Generation::make_readers() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    choices_[i].wants_logprobs = inputs_[i].request.num_top_logprobs >= 0;
    choices_[i].reader.emplace(tokenizer_, std::move(inputs_[i].reply));
  }
}

// Only a bug throws here; the client is to hear of it and the engine's slots are to come free.
void Generation::guarded(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& e) {
    if (!is_over_)
      fail({ErrorCode::kInternal, fmt::format("serving failed on this reply: {}", e.what()), ""});
  }
}

void Generation::on_event(int choice_idx, const runtime::Event& event) {
  Choice& choice = choices_[static_cast<size_t>(choice_idx)];
  if (is_over_ || choice.is_over) return;
  choice.num_cached_tokens = event.num_cached_tokens.value_or(choice.num_cached_tokens);
  if (!event.prompt.empty()) listener_->on_prompt(choice_idx, event.prompt);
  if (Deltas deltas = read_tokens(choice, event); !deltas.empty())
    listener_->on_deltas(choice_idx, std::move(deltas), {choice.tokens, choice.num_tokens});
  switch (event.finish) {
    case runtime::FinishReason::kNotFinished:
      if (!choice.reader->parser().ended()) return;
      engine_.cancel(*choice.id);
      return end_choice(choice_idx, ChoiceFinish::kStop);
    case runtime::FinishReason::kStop:
      return end_choice(choice_idx, ChoiceFinish::kStop);
    case runtime::FinishReason::kLength:
      return end_choice(choice_idx,
                        choice.reader->parser().ended() ? ChoiceFinish::kStop : ChoiceFinish::kLength);
    case runtime::FinishReason::kCancelled:
      choice.is_over = true;
      return fail({ErrorCode::kUnavailable, "the engine gave the request up: the server is stopping", ""});
    case runtime::FinishReason::kError:
      choice.is_over = true;
      return fail({event.error_code, event.error, ""});
  }
}

Deltas Generation::read_tokens(Choice& choice, const runtime::Event& event) {
  Deltas deltas;
  for (const runtime::OutputToken& token : event.tokens) {
    if (choice.reader->parser().ended()) break;
    int token_idx = TracedText::kNoToken;
    if (choice.wants_logprobs) {
      token_idx = static_cast<int>(choice.tokens.size());
      choice.tokens.push_back(token);
    }
    ++choice.num_tokens;
    for (Delta& delta : choice.reader->push(token.token_id, token_idx)) add_delta(deltas, std::move(delta));
  }
  const bool is_last =
      event.finish == runtime::FinishReason::kStop || event.finish == runtime::FinishReason::kLength;
  if (is_last)
    for (Delta& delta : choice.reader->finish()) add_delta(deltas, std::move(delta));
  return deltas;
}

void Generation::end_choice(int choice_idx, ChoiceFinish finish) {
  Choice& choice = choices_[static_cast<size_t>(choice_idx)];
  const ReplyParser& reply = choice.reader->parser();
  choice.is_over = true;
  listener_->on_choice_end(choice_idx,
                           {finish_of(reply, finish), choice.num_tokens, reply.num_reasoning_tokens(),
                            choice.num_cached_tokens, reply.stop_string()});
  if (--num_open_ > 0) return;
  is_over_ = true;
  listener_->finished();
  listener_ = nullptr;
}

void Generation::fail(const Error& error) {
  if (error.code == ErrorCode::kInternal) log_error("a request failed: {}", error.message);
  listener_->failed(error);
  cancel_rest();
}

// What was not submitted yet has an end as well: an empty answer.
void Generation::abort_rest() {
  if (!inputs_.empty()) {
    make_readers();
    inputs_.clear();
    listener_->started();
  }
  for (size_t i = 0; i < choices_.size() && !is_over_; ++i) {
    Choice& choice = choices_[i];
    if (choice.is_over) continue;
    if (choice.id) engine_.cancel(*choice.id);
    if (Deltas deltas = choice.reader->finish(); !deltas.empty())
      listener_->on_deltas(static_cast<int>(i), std::move(deltas), {choice.tokens, choice.num_tokens});
    end_choice(static_cast<int>(i), ChoiceFinish::kAborted);
  }
}

void Generation::cancel_rest() {
  is_over_ = true;
  for (const Choice& choice : choices_)
    if (choice.id && !choice.is_over) engine_.cancel(*choice.id);
  listener_ = nullptr;
}

}  // namespace lockstep::serving
