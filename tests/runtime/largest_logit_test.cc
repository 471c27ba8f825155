// Which draws need no more of the logits than the largest, and that its id is what is drawn then.
#include <gtest/gtest.h>

#include "lockstep/runtime/sampler/sampler.h"
#include "lockstep/runtime/sampler/step_draws.h"

namespace lockstep::runtime {
namespace {

DrawState greedy_state() {
  return {.params = {.temperature = 0}, .num_prompt = 3, .max_new_tokens = 4, .ending_ids = {7}};
}

TEST(LargestLogit, SufficesForGreedyDrawsThatNothingChanges) {
  EXPECT_TRUE(draws_largest({.temperature = 0}));
  EXPECT_TRUE(draws_largest({.temperature = 1, .top_k = 1}));
  EXPECT_FALSE(draws_largest({.temperature = 1}));
  EXPECT_FALSE(draws_largest({.temperature = 0, .repetition_penalty = 1.1f}));
  EXPECT_FALSE(draws_largest({.temperature = 0, .presence_penalty = 0.5f}));
  SamplingParams biased{.temperature = 0};
  biased.logit_bias.emplace_back(3, 1.0f);
  EXPECT_FALSE(draws_largest(biased));
}

TEST(LargestLogit, DoesNotWhereIdsAreBarredOrListed) {
  EXPECT_TRUE(needs_largest_only(greedy_state()));
  DrawState must_go_on = greedy_state();
  must_go_on.min_new_tokens = 2;
  EXPECT_FALSE(needs_largest_only(must_go_on));
  must_go_on.num_output = 2;
  EXPECT_TRUE(needs_largest_only(must_go_on));
  must_go_on.num_output = 0;
  must_go_on.ending_ids.clear();
  EXPECT_TRUE(needs_largest_only(must_go_on));
  DrawState listed = greedy_state();
  listed.num_top_logprobs = 0;
  EXPECT_FALSE(needs_largest_only(listed));
}

// One row comes as the id alone, the other as logits of which the same is drawn.
TEST(LargestLogit, IsDrawn) {
  StepInput input;
  input.plan.counts.push_back({.logit_rows = {0, 1}});
  input.replicas.push_back({{.id = 1, .wanted = WantedLogits::kLast, .token_ids = {5}, .context = 4},
                            {.id = 2, .wanted = WantedLogits::kLast, .token_ids = {5}, .context = 4}});
  const DrawState state = greedy_state();
  StepDraws draws(input, {.num_logits = 8, .num_valid_tokens = 7},
                  [&](RequestId) -> const DrawState& { return state; });
  std::vector<float> logits = {0, 1, 2, 3, 9, 3, 9, 50};
  draws.take({.replica = 0, .row = 0, .largest = 4});
  draws.take({.replica = 0, .row = 1, .logits = logits});
  draws.finish();
  EXPECT_EQ(draws.results(0, 0)[0].token.token_id, 4);
  EXPECT_EQ(draws.results(0, 1)[0].token.token_id, 4);
  EXPECT_EQ(draws.results(0, 0)[0].fault, "");
}

// An id alone is not taken for a draw that something may change.
TEST(LargestLogit, IsRefusedWhereItDoesNotSuffice) {
  StepInput input;
  input.plan.counts.push_back({.logit_rows = {0}});
  input.replicas.push_back({{.id = 1, .wanted = WantedLogits::kLast, .token_ids = {5}, .context = 4}});
  DrawState barred = greedy_state(), scored = greedy_state();
  barred.min_new_tokens = 2;
  const auto take = [&](const DrawState& state) {
    StepDraws draws(input, {.num_logits = 8, .num_valid_tokens = 7},
                    [&](RequestId) -> const DrawState& { return state; });
    draws.take({.replica = 0, .row = 0, .largest = 4});
    draws.finish();
  };
  EXPECT_NO_THROW(take(greedy_state()));
  EXPECT_THROW(take(barred), Fatal);
  input.replicas[0][0].wanted = WantedLogits::kAll;
  EXPECT_THROW(take(scored), Fatal);
}

}  // namespace
}  // namespace lockstep::runtime
