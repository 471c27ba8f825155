// The golden checkpoints through the whole engine on a GPU, on one rank and on several that share it, against
// the float32 references: products take their inputs as bf16 there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <tuple>

#include "lockstep/kernels/device.h"
#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"
#include "tests/golden/examples.h"

namespace lockstep::test {
namespace {

using enum kernels::ProductInputs;
using enum runtime::CacheType;

// The relative error ‖out − ref‖ / ‖ref‖ over all logits that the reference lists.
constexpr double kRelativeRounded = 2e-2, kRelativeWhole = 2e-4;
// Keys and values that are rounded when they are cached cost up to 4e-3 on the CPU, where nothing else is.
constexpr double kRelativeBf16Cache = 1e-2;
constexpr double kClearMargin = 0.25;  // between the reference's best two: then ours must be the same

struct Sums {
  double difference = 0, size = 0;
  void add(double out, double reference) {
    difference += (out - reference) * (out - reference);
    size += reference * reference;
  }
  double relative() const { return std::sqrt(difference / size); }
};

// Of an id that is listed; a logit that is not is a failure.
void add_position(const Example& example, const runtime::PromptScores& scores, size_t position, Sums& sums) {
  const auto& ids = scores.top_ids[position];
  const auto& logits = scores.top_logits[position];
  for (size_t n = 0; n < example.top_ids[position].size(); ++n) {
    const auto at = std::find(ids.begin(), ids.end(), example.top_ids[position][n]);
    ASSERT_NE(at, ids.end()) << "token " << example.top_ids[position][n] << " of position " << position;
    sums.add(static_cast<double>(logits[static_cast<size_t>(at - ids.begin())]),
             example.top_logits[position][n]);
  }
  const auto& listed = example.top_logits[position];
  if (listed.size() > 1 && listed[0] - listed[1] > kClearMargin) {
    EXPECT_EQ(ids[0], example.top_ids[position][0]) << "position " << position;
  }
}

void add_example(const Example& example, const Outcome& outcome, Sums& sums) {
  ASSERT_EQ(outcome.error, "");
  ASSERT_TRUE(outcome.scores.has_value());
  const runtime::PromptScores& scores = *outcome.scores;
  ASSERT_EQ(scores.top_ids.size(), example.input_ids.size());
  for (size_t position = 0; position < scores.top_ids.size(); ++position)
    add_position(example, scores, position, sums);
  ASSERT_EQ(scores.last_logits.size(), example.last_logits.size());
  for (size_t id = 0; id < scores.last_logits.size(); ++id)
    sums.add(static_cast<double>(scores.last_logits[id]), example.last_logits[id]);
}

double bound_of(kernels::ProductInputs inputs, runtime::CacheType cache) {
  if (inputs == kRounded) return kRelativeRounded;
  return cache == kBF16 ? kRelativeBf16Cache : kRelativeWhole;
}

using Case = std::tuple<Golden, NamedFlags, kernels::ProductInputs, runtime::CacheType>;
class GoldenOnGpu : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto facts = kernels::device_facts(kernels::Device::kCuda);
    if (!facts) GTEST_SKIP() << facts.error().message;
  }
};

TEST_P(GoldenOnGpu, LogitsAreLikeTheReference) {
  const auto& [golden, named, inputs, cache] = GetParam();
  const auto examples = read_examples(golden);
  const auto engine = start({.model_directory = repository(golden.model),
                             .parallel = named.flags,
                             .max_total_tokens = 4096,
                             .cache_type = cache,
                             .device = kernels::Device::kCuda,
                             .product_inputs = inputs});
  std::vector<runtime::Request> requests;
  for (const Example& example : examples) {
    runtime::Request request = greedy(example.input_ids, static_cast<int>(example.greedy_ids.size()));
    request.ignore_eos = true;
    request.prompt_top_logits = 64;  // rounding may change their order
    requests.push_back(std::move(request));
  }
  const auto outcomes = run_all(*engine, requests);
  Sums sums;
  for (size_t at = 0; at < examples.size(); ++at) {
    SCOPED_TRACE("example " + std::to_string(at));
    add_example(examples[at], outcomes[at], sums);
    EXPECT_EQ(outcomes[at].ids.size(), examples[at].greedy_ids.size());
  }
  EXPECT_LE(sums.relative(), bound_of(inputs, cache));
  std::cout << "relative error " << sums.relative() << "\n";
}

[[maybe_unused]] void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.model; }
[[maybe_unused]] void PrintTo(const NamedFlags& named, std::ostream* out) { *out << named.name; }

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string model = std::get<0>(info.param).model;
  model = model.substr(model.rfind('/') + 1);
  std::replace_if(model.begin(), model.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return model + "_" + std::get<1>(info.param).name;
}

// One rank, and worlds of two and four with every kind of exchange.
std::vector<NamedFlags> some(std::vector<NamedFlags> all) {
  std::erase_if(all, [](const NamedFlags& named) { return named.flags.tp_size.value_or(1) > 4; });
  return all;
}

// Rounding moves a router's sums. Where a checkpoint of random weights scores two experts of a token alike,
// the choice falls otherwise and that token's logits are others: the variants, qwen3.5-moe and qwen3-next
// have such tokens, and are compared with whole inputs only.
INSTANTIATE_TEST_SUITE_P(
    Rounded, GoldenOnGpu,
    ::testing::Combine(
        ::testing::Values(golden("deepseek-v3"), golden("deepseek-v3-yarn"), golden("qwen3-moe"),
                          golden("glm4-moe"), golden("qwen3-moe-variant"),
                          Golden{"models/tutor-deepseek-v3", "tests/golden/tutor-deepseek-v3/golden.json"},
                          Golden{"models/tutor-qwen3.5-moe", "tests/golden/tutor-qwen3.5-moe/golden.json"}),
        ::testing::ValuesIn(some(all_configurations())), ::testing::Values(kRounded),
        ::testing::Values(kF32)),
    name_of);

INSTANTIATE_TEST_SUITE_P(RoundedDense, GoldenOnGpu,
                         ::testing::Combine(::testing::Values(golden("llama"), golden("qwen3"),
                                                              golden("llama-variant")),
                                            ::testing::ValuesIn(some(dense_configurations())),
                                            ::testing::Values(kRounded), ::testing::Values(kF32)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Whole, GoldenOnGpu,
    ::testing::Combine(
        ::testing::Values(golden("deepseek-v3"), golden("deepseek-v3-yarn"), golden("qwen3-moe"),
                          golden("glm4-moe"), golden("qwen3-moe-variant"), golden("glm4-moe-variant"),
                          golden("qwen3.5-moe"), golden("qwen3-next"), golden("gpt-oss"), golden("mixtral"),
                          golden("qwen2-moe"), golden("deepseek-v2"), golden("deepseek-v2-lite"),
                          golden("deepseek-v32"),
                          Golden{"models/tutor-deepseek-v3", "tests/golden/tutor-deepseek-v3/golden.json"},
                          Golden{"models/tutor-qwen3.5-moe", "tests/golden/tutor-qwen3.5-moe/golden.json"}),
        ::testing::ValuesIn(some(all_configurations())), ::testing::Values(kWhole), ::testing::Values(kF32)),
    name_of);

INSTANTIATE_TEST_SUITE_P(WholeDense, GoldenOnGpu,
                         ::testing::Combine(::testing::Values(golden("llama"), golden("qwen3"),
                                                              golden("llama-variant")),
                                            ::testing::ValuesIn(some(dense_configurations())),
                                            ::testing::Values(kWhole), ::testing::Values(kF32)),
                         name_of);

// A cache of bf16, which is what kernels on tensor cores read.
std::vector<NamedFlags> few(std::vector<NamedFlags> all) {
  all.resize(2);
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Bf16CacheWhole, GoldenOnGpu,
    ::testing::Combine(
        ::testing::Values(golden("deepseek-v3"), golden("qwen3-moe"),
                          Golden{"models/tutor-deepseek-v3", "tests/golden/tutor-deepseek-v3/golden.json"},
                          Golden{"models/tutor-qwen3.5-moe", "tests/golden/tutor-qwen3.5-moe/golden.json"}),
        ::testing::ValuesIn(few(all_configurations())), ::testing::Values(kWhole), ::testing::Values(kBF16)),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Bf16CacheRounded, GoldenOnGpu,
    ::testing::Combine(
        ::testing::Values(Golden{"models/tutor-deepseek-v3", "tests/golden/tutor-deepseek-v3/golden.json"},
                          Golden{"models/tutor-qwen3.5-moe", "tests/golden/tutor-qwen3.5-moe/golden.json"}),
        ::testing::ValuesIn(few(all_configurations())), ::testing::Values(kRounded),
        ::testing::Values(kBF16)),
    name_of);

INSTANTIATE_TEST_SUITE_P(Bf16CacheDense, GoldenOnGpu,
                         ::testing::Combine(::testing::Values(golden("llama"), golden("qwen3")),
                                            ::testing::ValuesIn(few(dense_configurations())),
                                            ::testing::Values(kRounded, kWhole), ::testing::Values(kBF16)),
                         [](const ::testing::TestParamInfo<Case>& of) {
                           return name_of(of) + (std::get<2>(of.param) == kWhole ? "_whole" : "_rounded");
                         });

}  // namespace
}  // namespace lockstep::test
