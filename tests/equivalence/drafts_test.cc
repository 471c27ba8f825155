// With the checkpoint's MTP module drafting, the text is token for token what it is without: greedy and
// sampled, on one rank and on many, whatever the widths; and drafts are accepted.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::test {
namespace {

constexpr const char* kModel = "models/tutor-deepseek-v3";
constexpr int kMaxTokens = kSanitized ? 8 : 40;

std::vector<runtime::Request> requests() {
  std::vector<runtime::Request> found;
  for (const Json& entry : read_json_file("tests/golden/tutor-deepseek-v3/golden.json")) {
    found.push_back(greedy(entry.at("input_ids"), kMaxTokens));
    if (found.size() % 2 == 0) continue;
    found.back().sampling = {.temperature = 0.9f, .top_p = 0.95f, .seed = found.size()};
  }
  if (kSanitized) found.resize(3);
  // One that may not draft, in the same batches.
  found.push_back(found.front());
  found.back().sampling = {.temperature = 0, .frequency_penalty = 0.5f};
  return found;
}

struct Ran {
  std::vector<Outcome> outcomes;
  runtime::EngineStats stats;
};

Ran run(planning::ParallelFlags flags, int num_drafts, int page_size = 16) {
  flags.max_running_requests = 5;
  flags.chunked_prefill_size = 24;
  if (num_drafts > 0) {
    flags.speculative_algorithm = "NEXTN";
    flags.speculative_num_steps = num_drafts;
  }
  const auto engine =
      start({.model_directory = repository(kModel), .parallel = std::move(flags), .page_size = page_size});
  Ran ran{run_all(*engine, requests()), {}};
  ran.stats = engine->stats();
  return ran;
}

struct Case {
  const char* name;
  planning::ParallelFlags flags;
};

const Case kCases[] = {
    {"one_rank", {}},
    {"tp2_embedding2", {.tp_size = 2, .embedding_tp_size = 2}},
    {"dp4_ep4_dispatch",
     {.tp_size = 4,
      .dp_size = 4,
      .enable_dp_attention = true,
      .ep_size = 4,
      .moe_dense_tp_size = 1,
      .moe_a2a_backend = "in_process"}},
    {"tp4_dp2_gather", {.tp_size = 4, .dp_size = 2, .enable_dp_attention = true, .ep_size = 2}},
    {"tp4_cp2_whole_shared", {.tp_size = 4, .ep_size = 4, .shared_experts = "whole", .attn_cp_size = 2}},
    {"tp8_dp2_dphead_token_major",
     {.tp_size = 8,
      .dp_size = 2,
      .enable_dp_attention = true,
      .ep_size = 8,
      .enable_dp_lm_head = true,
      .moe_a2a_backend = "in_process_token_major"}},
};

class Drafts : public ::testing::TestWithParam<Case> {};

TEST_P(Drafts, ChangeNoToken) {
  const Ran plain = run(GetParam().flags, 0);
  for (const int num_drafts : kSanitized ? std::vector{2} : std::vector{1, 3}) {
    const Ran drafting = run(GetParam().flags, num_drafts, 4);
    ASSERT_EQ(drafting.outcomes.size(), plain.outcomes.size());
    for (size_t at = 0; at < plain.outcomes.size(); ++at) {
      EXPECT_EQ(drafting.outcomes[at].ids, plain.outcomes[at].ids) << "request " << at;
      EXPECT_EQ(drafting.outcomes[at].finish, plain.outcomes[at].finish) << drafting.outcomes[at].error;
      EXPECT_EQ(drafting.outcomes[at].num_final_events, 1);
    }
    const runtime::EngineStats& stats = drafting.stats;
    EXPECT_EQ(stats.output_tokens, plain.stats.output_tokens);
    // The tutor solves its problems: most of what follows is foreseen.
    EXPECT_GT(stats.accepted_tokens * 2, stats.drafted_tokens / static_cast<uint64_t>(num_drafts));
    EXPECT_LT(stats.steps, plain.stats.steps);
    std::cout << GetParam().name << ", " << num_drafts << " drafts: " << stats.accepted_tokens << " of "
              << stats.drafted_tokens << " accepted, " << stats.steps << " steps for " << plain.stats.steps
              << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Configurations, Drafts, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Drafting, IsRefusedWithTheReasonWhereItCannotBe) {
  planning::ParallelFlags flags{.speculative_algorithm = "NEXTN"};
  const auto hybrid =
      runtime::start_engine({.model_directory = repository("models/tutor-qwen3.5-moe"), .parallel = flags});
  ASSERT_FALSE(hybrid.ok());
  EXPECT_EQ(hybrid.error().field, "--speculative-algorithm");
  EXPECT_NE(hybrid.error().message.find("recurrent state"), std::string::npos) << hybrid.error().message;
}

}  // namespace
}  // namespace lockstep::test
