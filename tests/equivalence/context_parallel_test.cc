// Prompts of uneven lengths whose attention is shared out over ranks, in zigzag and in runs: the text is one
// rank's, logits of every position within 2e-3, whatever else the ranks do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::test {
namespace {

constexpr int kNewTokens = 5;
constexpr float kCpTolerance = 2e-3f;

struct CpCase {
  const char* name;
  planning::ParallelFlags flags;
};

std::vector<CpCase> cp_cases() {
  std::vector<CpCase> cases = {
      {"tp2_cp2", {.tp_size = 2, .attn_cp_size = 2}},
      {"tp4_cp2", {.tp_size = 4, .attn_cp_size = 2}},
      {"tp4_cp4_dense1", {.tp_size = 4, .moe_dense_tp_size = 1, .attn_cp_size = 4}},
      {"tp4_dp2_cp2_ep4_dispatch",
       {.tp_size = 4,
        .dp_size = 2,
        .enable_dp_attention = true,
        .ep_size = 4,
        .moe_dense_tp_size = 1,
        .moe_a2a_backend = "in_process",
        .attn_cp_size = 2}},
      {"tp8_cp4", {.tp_size = 8, .attn_cp_size = 4}},
      {"tp8_cp8_ep2", {.tp_size = 8, .ep_size = 2, .attn_cp_size = 8}},
      {"tp8_dp2_cp2_dphead",
       {.tp_size = 8,
        .dp_size = 2,
        .enable_dp_attention = true,
        .enable_dp_lm_head = true,
        .attn_cp_size = 2}},
  };
  if (kSanitized) cases = {cases[1], cases[3]};
  return cases;
}

// Lengths that no width divides, one row, and fewer rows than ranks.
std::vector<runtime::Request> uneven_prompts(int vocab) {
  std::vector<runtime::Request> found;
  uint64_t state = 7;
  for (const int length : {1, 3, 11, 37, 62}) {
    std::vector<int32_t> prompt;
    for (int at = 0; at < length; ++at) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      prompt.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab)));
    }
    found.push_back(greedy(std::move(prompt), kNewTokens));
    found.back().ignore_eos = true;
    if (length == 37) found.back().prompt_top_logits = 3;  // all of its rows are wanted
  }
  return found;
}

std::vector<Outcome> run_prompts(const std::string& model, planning::ParallelFlags flags) {
  flags.max_running_requests = 6;
  flags.chunked_prefill_size = 43;  // chunks begin anywhere
  const auto engine = start({.model_directory = repository(model), .parallel = flags});
  return run_all(*engine, uneven_prompts(std::min(engine->model().vocab, 200)));
}

class ContextParallel : public ::testing::TestWithParam<const char*> {};

TEST_P(ContextParallel, SaysWhatOneRankSays) {
  const auto expected = run_prompts(GetParam(), {});
  for (const CpCase& one : cp_cases())
    for (const char* strategy : {"zigzag", "contiguous"}) {
      SCOPED_TRACE(fmt::format("{} {}", one.name, strategy));
      planning::ParallelFlags flags = one.flags;
      flags.cp_strategy = strategy;
      const auto outcomes = run_prompts(GetParam(), flags);
      for (size_t at = 0; at < outcomes.size(); ++at) {
        ASSERT_EQ(outcomes[at].error, "");
        EXPECT_EQ(outcomes[at].ids, expected[at].ids) << "prompt " << at;
        if (!expected[at].scores) continue;
        ASSERT_TRUE(outcomes[at].scores.has_value());
        EXPECT_EQ(outcomes[at].scores->top_ids, expected[at].scores->top_ids);
        ASSERT_EQ(outcomes[at].scores->top_logits.size(), expected[at].scores->top_logits.size());
        for (size_t row = 0; row < expected[at].scores->top_logits.size(); ++row)
          for (size_t top = 0; top < expected[at].scores->top_logits[row].size(); ++top)
            EXPECT_NEAR(outcomes[at].scores->top_logits[row][top], expected[at].scores->top_logits[row][top],
                        kCpTolerance);
      }
    }
}

// Latent attention, grouped attention with windows and sinks, and grouped attention.
INSTANTIATE_TEST_SUITE_P(Models, ContextParallel,
                         ::testing::Values("models/tutor-deepseek-v3", "tests/golden/gpt-oss",
                                           "tests/golden/qwen3-moe"),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::test
