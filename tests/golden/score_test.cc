// The float32 references of a checkpoint of every family, on 1, 2, 4 and 8 ranks and in every configuration
// of the list. The references were made with Hugging Face transformers and checked against float64 runs to
// within 6e-5 (tools/record_transformers_golden.py made some of them); those of the variants with
// tools/record_decoder_golden.py, which agrees with the former; that of qwen3-next with
// tools/record_qwen3_next_golden.py.
#include <gtest/gtest.h>

#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"
#include "tests/golden/examples.h"

namespace lockstep::test {
namespace {

constexpr double kTolerance = 2e-3;

// The reference's logits at a position, as far as it lists them, found among ours by id.
void expect_position(const Example& example, const runtime::PromptScores& scores, size_t position) {
  const auto& ids = scores.top_ids[position];
  for (size_t n = 0; n < example.top_ids[position].size(); ++n) {
    const int32_t id = example.top_ids[position][n];
    const auto at = std::find(ids.begin(), ids.end(), id);
    ASSERT_NE(at, ids.end()) << "token " << id << " of position " << position << " is not among the largest";
    EXPECT_NEAR(scores.top_logits[position][static_cast<size_t>(at - ids.begin())],
                example.top_logits[position][n], kTolerance)
        << "position " << position;
  }
}

// Greedy ids must agree as long as the reference's choice is clear; after an unclear one the texts may part.
void expect_greedy(const Example& example, const std::vector<int32_t>& ids) {
  auto sorted = example.last_logits;
  std::sort(sorted.rbegin(), sorted.rend());
  if (sorted[0] - sorted[1] > 2 * kTolerance) {
    EXPECT_EQ(ids, example.greedy_ids);
  }
}

class Score : public ::testing::TestWithParam<std::tuple<Golden, NamedFlags>> {};

TEST_P(Score, EqualsTheReference) {
  const auto& [golden, named] = GetParam();
  const auto examples = read_examples(golden);
  const auto engine = start({.model_directory = repository(golden.model), .parallel = named.flags});
  std::vector<runtime::Request> requests;
  for (const Example& example : examples) {
    runtime::Request request = greedy(example.input_ids, static_cast<int>(example.greedy_ids.size()));
    request.ignore_eos = true;
    request.prompt_top_logits = 24;  // a few more than listed, so that near ties do not push one out
    requests.push_back(std::move(request));
  }
  const auto outcomes = run_all(*engine, requests);
  for (size_t at = 0; at < examples.size(); ++at) {
    SCOPED_TRACE("example " + std::to_string(at));
    ASSERT_EQ(outcomes[at].error, "");
    ASSERT_TRUE(outcomes[at].scores.has_value());
    const runtime::PromptScores& scores = *outcomes[at].scores;
    ASSERT_EQ(scores.top_ids.size(), examples[at].input_ids.size());
    for (size_t position = 0; position < scores.top_ids.size(); ++position)
      expect_position(examples[at], scores, position);
    ASSERT_EQ(scores.last_logits.size(), examples[at].last_logits.size());
    for (size_t id = 0; id < scores.last_logits.size(); ++id)
      ASSERT_NEAR(scores.last_logits[id], examples[at].last_logits[id], kTolerance) << "token " << id;
    expect_greedy(examples[at], outcomes[at].ids);
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Golden, NamedFlags>>& info) {
  std::string model = std::get<0>(info.param).model;
  model = model.substr(model.rfind('/') + 1);
  std::replace_if(model.begin(), model.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return model + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, Score,
    ::testing::Combine(
        ::testing::Values(golden("deepseek-v3"), golden("deepseek-v3-yarn"), golden("deepseek-v2"),
                          golden("deepseek-v2-lite"), golden("deepseek-v32"),
                          Golden{"models/tutor-deepseek-v3", "tests/golden/tutor-deepseek-v3/golden.json"}),
        ::testing::ValuesIn(configurations())),
    name_of);

INSTANTIATE_TEST_SUITE_P(GroupedQuery, Score,
                         ::testing::Combine(::testing::Values(golden("qwen3-moe"), golden("glm4-moe"),
                                                              golden("qwen2-moe"), golden("mixtral"),
                                                              golden("gpt-oss"), golden("qwen3-moe-variant"),
                                                              golden("glm4-moe-variant")),
                                            ::testing::ValuesIn(grouped_configurations())),
                         name_of);

// Prompts that are longer than the 64 rows that the reference takes at once are among both.
INSTANTIATE_TEST_SUITE_P(
    DeltaNet, Score,
    ::testing::Combine(::testing::Values(golden("qwen3.5-moe"), golden("qwen3-next"),
                                         Golden{"models/tutor-qwen3.5-moe",
                                                "tests/golden/tutor-qwen3.5-moe/golden.json"}),
                       ::testing::ValuesIn(grouped_configurations())),
    name_of);

INSTANTIATE_TEST_SUITE_P(Dense, Score,
                         ::testing::Combine(::testing::Values(golden("llama"), golden("qwen3"),
                                                              golden("llama-variant")),
                                            ::testing::ValuesIn(dense_configurations())),
                         name_of);

}  // namespace
}  // namespace lockstep::test
