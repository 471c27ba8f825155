#pragma once
// What a request must answer, computed alone: no batch, no pages, no chunks. And a sink that keeps what came.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/engine.h"
#include "lockstep/runtime/sampler/sampler.h"
#include "lockstep/runtime/scheduler/limits.h"
#include "tests/runtime/scripted_executor.h"

namespace lockstep::runtime {

struct Outcome {
  std::vector<OutputToken> tokens;
  FinishReason finish = FinishReason::kNotFinished;
  std::optional<int32_t> stop_token_id;
  std::optional<PromptScores> scores;
  std::string error;

  std::vector<int32_t> ids() const {
    std::vector<int32_t> ids;
    for (const OutputToken& token : tokens) ids.push_back(token.token_id);
    return ids;
  }
};

inline ModelInfo scripted_model(int vocab, int context_length) {
  ModelInfo model;
  model.name = "scripted";
  model.vocab = vocab;
  model.context_length = context_length;
  model.eos_token_ids = {vocab - 1};
  return model;
}

inline PromptScores unscheduled_scores(const Request& request, int vocab) {
  PromptScores scores;
  History history;
  for (const int32_t token : request.prompt) {
    history.add(token);
    const std::vector<float> logits = scripted_logits(history, vocab);
    std::vector<int32_t> ids(static_cast<size_t>(vocab));
    for (int id = 0; id < vocab; ++id) ids[static_cast<size_t>(id)] = id;
    const auto value = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return value(a) > value(b); });
    ids.resize(static_cast<size_t>(request.prompt_top_logits));
    std::vector<float> values;
    for (const int32_t id : ids) values.push_back(value(id));
    scores.top_ids.push_back(ids);
    scores.top_logits.push_back(values);
    scores.last_logits = logits;
  }
  return scores;
}

inline Outcome unscheduled(const Request& request, uint64_t seed, const ModelInfo& model,
                           const SchedulerLimits& limits) {
  Outcome outcome;
  if (request.prompt_top_logits > 0) outcome.scores = unscheduled_scores(request, model.vocab);
  outcome.finish = FinishReason::kLength;
  History history = history_of(request.prompt);
  TokenCounts counts(request.prompt);
  std::vector<int32_t> ending = request.stop_token_ids;
  if (!request.ignore_eos)
    ending.insert(ending.end(), model.eos_token_ids.begin(), model.eos_token_ids.end());
  while (static_cast<int>(outcome.tokens.size()) < request.max_new_tokens) {
    std::vector<float> logits = scripted_logits(history, model.vocab);
    const bool may_end = static_cast<int>(outcome.tokens.size()) >= request.min_new_tokens;
    const Result<OutputToken> drawn = draw_token({.logits = logits,
                                                  .params = request.sampling,
                                                  .counts = counts,
                                                  .barred = may_end ? std::span<const int32_t>() : ending,
                                                  .seed = seed,
                                                  .position = static_cast<uint64_t>(history.num_tokens()),
                                                  .num_top_logprobs = request.num_top_logprobs});
    if (!drawn) {
      outcome.finish = FinishReason::kError;
      outcome.error = drawn.error().message;
      break;
    }
    const int32_t id = drawn->token_id;
    if (std::find(ending.begin(), ending.end(), id) != ending.end()) {
      outcome.finish = FinishReason::kStop;
      outcome.stop_token_id = id;
      break;
    }
    outcome.tokens.push_back(*drawn);
    counts.add_output(id);
    history.add(id);
    if (history.num_tokens() == std::min(limits.context_length, limits.pages_per_replica * limits.page_size))
      break;
  }
  return outcome;
}

// Keeps the events of one request and reports any that follow the final one. Copies share what they keep.
class Recorder {
 public:
  Recorder() : outcome_(std::make_shared<Outcome>()) {}
  void operator()(const Event& event) const {
    EXPECT_EQ(outcome_->finish, FinishReason::kNotFinished) << "request " << event.id << " had ended";
    for (const OutputToken& token : event.tokens) outcome_->tokens.push_back(token);
    if (event.prompt_scores) {
      EXPECT_FALSE(outcome_->scores.has_value()) << "request " << event.id << " got its scores twice";
      outcome_->scores = event.prompt_scores;
    }
    outcome_->stop_token_id = event.stop_token_id;
    outcome_->error = event.error;
    outcome_->finish = event.finish;
  }
  const Outcome& outcome() const { return *outcome_; }

 private:
  std::shared_ptr<Outcome> outcome_;
};

inline void expect_same_tokens(std::span<const OutputToken> got, std::span<const OutputToken> wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].token_id, wanted[i].token_id) << "at output position " << i;
    EXPECT_EQ(got[i].logprob, wanted[i].logprob);
    ASSERT_EQ(got[i].top.size(), wanted[i].top.size());
    for (size_t j = 0; j < got[i].top.size(); ++j) {
      EXPECT_EQ(got[i].top[j].token_id, wanted[i].top[j].token_id);
      EXPECT_EQ(got[i].top[j].logprob, wanted[i].top[j].logprob);
    }
  }
}

// An ended request said what it says alone; a cancelled one said the beginning of it.
inline void expect_as_unscheduled(const Outcome& got, const Outcome& wanted) {
  if (got.finish == FinishReason::kCancelled) {
    ASSERT_LE(got.tokens.size(), wanted.tokens.size());
    expect_same_tokens(got.tokens, std::span(wanted.tokens).first(got.tokens.size()));
  } else {
    EXPECT_EQ(got.finish, wanted.finish) << got.error;
    EXPECT_EQ(got.stop_token_id, wanted.stop_token_id);
    EXPECT_EQ(got.error, wanted.error);
    expect_same_tokens(got.tokens, wanted.tokens);
    EXPECT_EQ(got.scores.has_value(), wanted.scores.has_value());
  }
  if (!got.scores) return;
  ASSERT_TRUE(wanted.scores.has_value());
  EXPECT_EQ(got.scores->top_ids, wanted.scores->top_ids);
  EXPECT_EQ(got.scores->top_logits, wanted.scores->top_logits);
  EXPECT_EQ(got.scores->last_logits, wanted.scores->last_logits);
}

}  // namespace lockstep::runtime
