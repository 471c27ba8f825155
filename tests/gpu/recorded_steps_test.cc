// Decode steps that are replayed from recordings give what steps give whose kernels are launched one by one:
// the same tokens, while batches grow, shrink and pass page and split boundaries.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "lockstep/kernels/device.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::test {
namespace {

std::vector<Outcome> generate(const std::string& model, runtime::CacheType cache, kernels::Steps steps) {
  const auto engine = start({.model_directory = repository(model),
                             .max_total_tokens = 16384,
                             .cache_type = cache,
                             .device = kernels::Device::kCuda,
                             .steps = steps});
  std::vector<runtime::Request> requests;
  for (int at = 0; at < 7; ++at) {
    std::vector<int32_t> prompt;
    for (int token = 0; token < 5 + 45 * at; ++token) prompt.push_back(5 + (token * 7 + at) % 90);
    runtime::Request request = greedy(std::move(prompt), 20 + 15 * at);
    request.ignore_eos = true;
    request.num_top_logprobs = 3;
    requests.push_back(std::move(request));
  }
  // Rows that come together may decide how sums are cut, and rounding then moves tokens.
  std::vector<Outcome> outcomes = run_together(*engine, requests);
  for (const Outcome& again : run_together(*engine, requests)) outcomes.push_back(again);
  return outcomes;
}

using Case = std::tuple<const char*, runtime::CacheType>;
class RecordedSteps : public ::testing::TestWithParam<Case> {};

TEST_P(RecordedSteps, GiveTheSameTokens) {
  const auto facts = kernels::device_facts(kernels::Device::kCuda);
  if (!facts) GTEST_SKIP() << facts.error().message;
  const auto& [model, cache] = GetParam();
  const auto recorded = generate(model, cache, kernels::Steps::kRecorded);
  const auto launched = generate(model, cache, kernels::Steps::kLaunched);
  for (size_t at = 0; at < recorded.size(); ++at) {
    EXPECT_EQ(recorded[at].error, "");
    EXPECT_EQ(recorded[at].ids, launched[at].ids) << "request " << at;
    EXPECT_GE(recorded[at].ids.size(), 20u);
  }
}

// One request is decoded until its step is recorded; then prompts come that are together larger than any step
// before, for which scratch grows and moves; then the first shape comes again.
std::vector<Outcome> around_a_large_step(const std::string& model, runtime::CacheType cache,
                                         kernels::Steps steps) {
  const auto engine = start({.model_directory = repository(model),
                             .context_length = 256,
                             .max_total_tokens = 16384,
                             .cache_type = cache,
                             .device = kernels::Device::kCuda,
                             .steps = steps});
  const auto prompt = [](int length, int seed) {
    std::vector<int32_t> ids;
    for (int token = 0; token < length; ++token) ids.push_back(5 + (token * 7 + seed) % 90);
    return ids;
  };
  const auto request = [&](int length, int seed, int tokens) {
    runtime::Request one = greedy(prompt(length, seed), tokens);
    one.ignore_eos = true;
    return one;
  };
  std::vector<Outcome> outcomes;
  for (const auto& requests : {std::vector{request(9, 1, 30)},
                               std::vector{request(250, 2, 2), request(250, 3, 2), request(250, 4, 2)},
                               std::vector{request(9, 5, 60)}})
    for (const Outcome& outcome : run_together(*engine, requests)) outcomes.push_back(outcome);
  return outcomes;
}

TEST_P(RecordedSteps, OutliveScratchThatMoves) {
  const auto facts = kernels::device_facts(kernels::Device::kCuda);
  if (!facts) GTEST_SKIP() << facts.error().message;
  const auto& [model, cache] = GetParam();
  const auto recorded = around_a_large_step(model, cache, kernels::Steps::kRecorded);
  const auto launched = around_a_large_step(model, cache, kernels::Steps::kLaunched);
  for (size_t at = 0; at < recorded.size(); ++at) {
    EXPECT_EQ(recorded[at].error, "");
    EXPECT_EQ(recorded[at].ids, launched[at].ids) << "request " << at;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RecordedSteps,
    ::testing::Combine(::testing::Values("models/tutor-deepseek-v3", "models/tutor-qwen3.5-moe",
                                         "tests/golden/qwen3-moe"),
                       ::testing::Values(runtime::CacheType::kF32, runtime::CacheType::kBF16)),
    [](const auto& tested) {
      std::string name = std::get<0>(tested.param);
      name = name.substr(name.rfind('/') + 1);
      std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
      return name + (std::get<1>(tested.param) == runtime::CacheType::kF32 ? "_f32" : "_bf16");
    });

}  // namespace
}  // namespace lockstep::test
