#include "lockstep/runtime/sampler/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "lockstep/base/hash.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

std::vector<float> logs_of(std::vector<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

int32_t draw(std::vector<float> logits, const SamplingParams& params, uint64_t position = 0,
             uint64_t seed = 0) {
  const TokenCounts counts;
  return draw_token(
             {.logits = logits, .params = params, .counts = counts, .seed = seed, .position = position})
      ->token_id;
}

// The ids that come up in many draws.
std::set<int32_t> drawn(const std::vector<float>& logits, const SamplingParams& params) {
  std::set<int32_t> ids;
  for (uint64_t position = 0; position < 3000; ++position) ids.insert(draw(logits, params, position));
  return ids;
}

std::vector<float> adjusted(std::vector<float> logits, const SamplingParams& params,
                            const TokenCounts& counts, std::span<const int32_t> barred = {},
                            int32_t num_valid_tokens = 0) {
  adjust_logits({.logits = logits,
                 .params = params,
                 .counts = counts,
                 .barred = barred,
                 .num_valid_tokens = num_valid_tokens});
  return logits;
}

TokenCounts counts_of(std::vector<int32_t> prompt, std::vector<int32_t> output) {
  TokenCounts counts(prompt);
  for (const int32_t id : output) counts.add_output(id);
  return counts;
}

// contract: sample.greedy
TEST(Sampler, GreedyTakesTheLargestAndOfEqualOnesTheSmallestId) {
  EXPECT_EQ(draw({1, 3, 2}, greedy()), 1);
  EXPECT_EQ(draw({1, 3, 3, 3}, greedy()), 1);
  EXPECT_EQ(draw({-7, -7}, greedy()), 0);
  EXPECT_EQ(draw({-0.0f, 0.0f}, greedy()), 0) << "equal, though their bits differ";
  EXPECT_EQ(draw({5}, greedy()), 0);
  std::vector<float> many(1000, 1.0f);
  many[777] = many[999] = 1.5f;
  EXPECT_EQ(draw(many, greedy()), 777);
}

// The published formula of presence and frequency penalties: logit - count * frequency - (count > 0) *
// presence, where only the output is counted.
TEST(Sampler, FrequencyAndPresencePenaltiesByHand) {
  SamplingParams params;
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.25f;
  EXPECT_THAT(adjusted({1, 1, 1, 1}, params, counts_of({3}, {0, 0, 1})), ElementsAre(-0.25f, 0.25f, 1, 1));
  params.frequency_penalty = -0.5f;
  params.presence_penalty = 0;
  EXPECT_THAT(adjusted({1, 1}, params, counts_of({}, {0, 0})), ElementsAre(2, 1))
      << "negative ones encourage";
}

// Keskar and others, CTRL (2019), with the usual care for the sign: tokens of prompt or output become less
// likely.
TEST(Sampler, RepetitionPenaltyByHand) {
  SamplingParams params;
  params.repetition_penalty = 2;
  EXPECT_THAT(adjusted({3, -1, 0.5f, 4, 0}, params, counts_of({0, 1, 1}, {3})),
              ElementsAre(1.5f, -2, 0.5f, 2, 0));
  params.repetition_penalty = 0.5f;
  EXPECT_THAT(adjusted({3, -1}, params, counts_of({0, 1}, {})), ElementsAre(6, -0.5f))
      << "below one encourages";
}

TEST(Sampler, BiasComesBeforePenaltiesAndRepetitionBeforeTheOthers) {
  SamplingParams params;
  params.logit_bias = {{0, 3.0f}, {1, -1.0f}, {0, 1.0f}};
  params.repetition_penalty = 2;
  params.presence_penalty = 1;
  // (-2 + 3 + 1) / 2 - 1 = 0; (3 - 1) / 2 - 1 = 0
  EXPECT_THAT(adjusted({-2, 3, 3}, params, counts_of({}, {0, 1})), ElementsAre(0, 0, 3));
}

TEST(Sampler, BarredIdsAndIdsBeyondTheTokenizerAreNeverDrawn) {
  const std::vector<int32_t> barred = {1, 1, 9};
  EXPECT_THAT(adjusted({1, 2, 3}, SamplingParams(), TokenCounts(), barred), ElementsAre(1, -kInfinity, 3));
  SamplingParams biased = greedy();
  biased.logit_bias = {{1, 50.0f}, {3, 100.0f}};
  std::vector<float> logits = {1, 2, 3, 9, 9};
  const TokenCounts counts;
  const DrawArgs args{
      .logits = logits, .params = biased, .counts = counts, .barred = barred, .num_valid_tokens = 3};
  EXPECT_EQ(draw_token(args)->token_id, 2);
}

TEST(Sampler, TopKKeepsExactlyK) {
  SamplingParams params;
  params.top_k = 2;
  EXPECT_EQ(drawn(logs_of({0.1, 0.4, 0.2, 0.3}), params), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(drawn({1, 1, 1, 1}, params), (std::set<int32_t>{0, 1})) << "of equal ones the smaller ids";
  params.top_k = 1;
  EXPECT_EQ(drawn({1, 2, 2}, params), (std::set<int32_t>{1}));
  params.top_k = 9;
  EXPECT_EQ(drawn({1, 1}, params), (std::set<int32_t>{0, 1}));
  params.top_k = 0;
  EXPECT_EQ(drawn({1, 1, 1}, params), (std::set<int32_t>{0, 1, 2}));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  SamplingParams params;
  const std::vector<float> logits = logs_of({0.1, 0.5, 0.15, 0.25});
  params.top_p = 0.6f;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{1, 3}));
  params.top_p = 0.8f;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{1, 2, 3}));
  params.top_p = 0.4f;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{1}));
  params.top_p = 0;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{1})) << "one token is always left";
  params.top_p = 0.5f;
  EXPECT_EQ(drawn({3, 3, 3, 3}, params), (std::set<int32_t>{0, 1})) << "of equal ones the smaller ids";
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  SamplingParams params;
  params.min_p = 0.25f;  // 0.125 and above
  EXPECT_EQ(drawn(logs_of({0.1, 0.5, 0.15, 0.25}), params), (std::set<int32_t>{1, 2, 3}));
  params.min_p = 1;
  EXPECT_EQ(drawn({2, 2, 1.9f}, params), (std::set<int32_t>{0, 1}));
}

TEST(Sampler, EachFilterSeesWhatTheOneBeforeItLeft) {
  const std::vector<float> logits = logs_of({0.5, 0.25, 0.15, 0.1});
  SamplingParams params;
  params.top_p = 0.8f;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{0, 1, 2})) << "0.75 does not reach 0.8";
  params.top_k = 3;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{0, 1})) << "0.75 of 0.9 does";
  params = {};
  params.top_p = 0.7f;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{0, 1}));
  params.temperature = 0.5f;  // squares: 0.25 of 0.345
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{0}));
  params = {};
  params.temperature = 2;  // roots: 0.447 of the largest is not below 0.44
  params.min_p = 0.44f;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{0, 1, 2, 3}));
  params.temperature = 1;
  EXPECT_EQ(drawn(logits, params), (std::set<int32_t>{0, 1}));
}

// contract: sample.seed-and-position
TEST(Sampler, TheDrawIsTheInverseOfTheDistributionInTheOrderOfIds) {
  SamplingParams params;
  for (uint64_t position = 0; position < 500; ++position) {
    const double uniform = uniform_draw(11, position);
    EXPECT_EQ(draw({7, 7, 7, 7}, params, position, 11), static_cast<int32_t>(4 * uniform));
    EXPECT_EQ(draw(logs_of({0.75, 0.25}), params, position, 11), uniform < 0.75 ? 0 : 1);
  }
}

TEST(Sampler, ExtremeTemperaturesAndLogits) {
  SamplingParams params;
  params.temperature = 1e-30f;
  EXPECT_EQ(drawn({1, 1.000001f, 0}, params), (std::set<int32_t>{1}));
  params.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(drawn({1, 2, 2}, params), (std::set<int32_t>{1, 2}));
  params.temperature = 1;
  EXPECT_EQ(drawn({3e38f, -3e38f, 1}, params), (std::set<int32_t>{0}));
  EXPECT_EQ(drawn({-1e30f, -1e30f}, params), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(drawn({0, -kInfinity, 0}, params), (std::set<int32_t>{0, 2})) << "minus infinity cannot be drawn";
}

// contract: sample.non-finite
TEST(Sampler, LogitsThatAreNotNumbersAreAnError) {
  const TokenCounts counts;
  const auto error_of = [&](std::vector<float> logits, std::vector<int32_t> barred = {}) {
    const SamplingParams params = greedy();
    const auto token =
        draw_token({.logits = logits, .params = params, .counts = counts, .barred = barred, .position = 7});
    return token.ok() ? std::string("drawn") : token.error().message;
  };
  EXPECT_EQ(error_of({1, kNan, 2}), "the logit of id 1 is nan at position 7");
  EXPECT_EQ(error_of({kInfinity, 2}), "the logit of id 0 is inf at position 7");
  std::vector<float> many(1000, 0.0f);
  many[998] = kNan;
  EXPECT_THAT(error_of(many), HasSubstr("id 998 is nan"));
  EXPECT_THAT(error_of({-kInfinity, -kInfinity}), HasSubstr("none of 2 ids"));
  EXPECT_THAT(error_of({1, 2}, {0, 1}), HasSubstr("2 are barred"));
  EXPECT_THAT(error_of({}), HasSubstr("0 logits"));
  EXPECT_EQ(error_of({1, -kInfinity}), "drawn");
}

// contract: sample.logprobs
TEST(Sampler, LogprobsAreOfTheModelsOwnDistribution) {
  SamplingParams params = greedy();
  params.logit_bias = {{0, 50.0f}};
  params.repetition_penalty = 2;
  const TokenCounts counts = counts_of({1, 2}, {2});
  std::vector<float> logits = logs_of({1, 2, 4});  // sevenths
  const auto token =
      draw_token({.logits = logits, .params = params, .counts = counts, .num_top_logprobs = 2});
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(token->token_id, 0);
  EXPECT_NEAR(token->logprob, std::log(1.0 / 7), 1e-6);
  ASSERT_EQ(token->top.size(), 2U);
  EXPECT_EQ(token->top[0].token_id, 2);
  EXPECT_NEAR(token->top[0].logprob, std::log(4.0 / 7), 1e-6);
  EXPECT_EQ(token->top[1].token_id, 1);
  EXPECT_NEAR(token->top[1].logprob, std::log(2.0 / 7), 1e-6);
}

TEST(Sampler, LogprobsCountAllRowsButListOnlyValidIds) {
  std::vector<float> logits = {0, 0, 1, 1};
  const TokenCounts counts;
  const SamplingParams params = greedy();
  const auto token = draw_token(
      {.logits = logits, .params = params, .counts = counts, .num_valid_tokens = 2, .num_top_logprobs = 3});
  const double each = -std::log(2 + 2 * std::exp(1.0));
  EXPECT_EQ(token->token_id, 0);
  EXPECT_NEAR(token->logprob, each, 1e-6);
  ASSERT_EQ(token->top.size(), 2U);
  EXPECT_EQ(token->top[0].token_id, 0) << "ties by the smaller id";
  EXPECT_NEAR(token->top[1].logprob, each, 1e-6);
}

TEST(Sampler, LogprobsOfHugeAndTinyLogitsStayFinite) {
  const TokenCounts counts;
  const SamplingParams params = greedy();
  std::vector<float> logits = {1000, 998, -1000};
  const auto token =
      draw_token({.logits = logits, .params = params, .counts = counts, .num_top_logprobs = 3});
  EXPECT_NEAR(token->logprob, -std::log1p(std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(token->top[2].logprob, -2000 - std::log1p(std::exp(-2.0)), 1e-3);
}

TEST(Sampler, WithoutLogprobsNoneAreGiven) {
  const TokenCounts counts;
  const SamplingParams params;
  std::vector<float> logits = {1, 2};
  const auto token = draw_token({.logits = logits, .params = params, .counts = counts});
  EXPECT_EQ(token->logprob, 0);
  EXPECT_TRUE(token->top.empty());
}

}  // namespace
}  // namespace lockstep::runtime
