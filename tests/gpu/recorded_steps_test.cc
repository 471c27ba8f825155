// Decode steps that are replayed from recordings give what steps give whose kernels are launched one by one:
// the same tokens, while batches grow, shrink and pass page and split boundaries.
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/kernels/device.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::test {
namespace {

std::vector<Outcome> generate(const std::string& model, kernels::Steps steps) {
  const auto engine = start({.model_directory = repository(model),
                             .max_total_tokens = 16384,
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
  std::vector<Outcome> outcomes = run_all(*engine, requests);
  for (const Outcome& again : run_all(*engine, requests)) outcomes.push_back(again);
  return outcomes;
}

class RecordedSteps : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordedSteps, GiveTheSameTokens) {
  const auto facts = kernels::device_facts(kernels::Device::kCuda);
  if (!facts) GTEST_SKIP() << facts.error().message;
  const auto recorded = generate(GetParam(), kernels::Steps::kRecorded);
  const auto launched = generate(GetParam(), kernels::Steps::kLaunched);
  for (size_t at = 0; at < recorded.size(); ++at) {
    EXPECT_EQ(recorded[at].error, "");
    EXPECT_EQ(recorded[at].ids, launched[at].ids) << "request " << at;
    EXPECT_GE(recorded[at].ids.size(), 20u);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedSteps,
                         ::testing::Values("models/tutor-deepseek-v3", "models/tutor-qwen3.5-moe",
                                           "tests/golden/qwen3-moe"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           name = name.substr(name.rfind('/') + 1);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::test
