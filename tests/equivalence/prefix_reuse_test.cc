// What a request is answered does not depend on whether its beginning was in the cache: with the cache and
// without it, for attention that caches every token and for layers that keep a state once a sequence.
#include <gtest/gtest.h>

#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::test {
namespace {

constexpr int kMaxTokens = kSanitized ? 4 : 8;

struct Case {
  std::string name, model;
  planning::ParallelFlags flags;
};

class PrefixReuse : public ::testing::TestWithParam<Case> {};

// Conversations in their turns: each asks what the one before asked, was answered, and something more. Beside
// them prompts that part from each other after a common beginning.
std::vector<runtime::Request> round_of(const std::vector<std::vector<int32_t>>& prompts, size_t round) {
  std::vector<runtime::Request> requests;
  for (const auto& prompt : prompts) {
    std::vector<int32_t> ids = prompts[0];
    ids.insert(ids.end(), prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(prompt.size() / 2));
    for (size_t turn = 0; turn < round; ++turn) ids.insert(ids.end(), prompt.begin(), prompt.end());
    requests.push_back(greedy(std::move(ids), kMaxTokens));
    requests.back().ignore_eos = true;
  }
  return requests;
}

TEST_P(PrefixReuse, AnswersAsWithoutACache) {
  runtime::EngineConfig config{.model_directory = repository("models/" + GetParam().model),
                               .parallel = GetParam().flags,
                               .context_length = 2048,
                               .max_total_tokens = 8192};
  config.parallel.max_running_requests = 8;
  config.parallel.chunked_prefill_size = 64;
  const auto cached = start(config);
  config.prefix_cache = runtime::PrefixCache::kOff;
  const auto plain = start(config);
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& entry : read_json_file("tests/golden/" + GetParam().model + "/golden.json"))
    prompts.push_back(entry.at("input_ids"));
  if (kSanitized && prompts.size() > 3) prompts.resize(3);
  for (size_t round = 0; round < 3; ++round) {
    const std::vector<runtime::Request> requests = round_of(prompts, round);
    const auto with = run_all(*cached, requests), without = run_all(*plain, requests);
    for (size_t at = 0; at < requests.size(); ++at)
      EXPECT_EQ(with[at].ids, without[at].ids) << "round " << round << " request " << at << with[at].error;
  }
  const runtime::EngineStats stats = cached->stats();
  EXPECT_GT(stats.prefix_tokens_hit, stats.prefix_tokens_queried / 3);
  EXPECT_LT(stats.prefix_tokens_hit, stats.prefix_tokens_queried);
  EXPECT_EQ(plain->stats().prefix_tokens_hit, 0u);
  for (const auto& replica : stats.replicas) EXPECT_EQ(replica.pages_used + replica.slots_used, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Tutors, PrefixReuse,
    ::testing::Values(Case{"mla_one_rank", "tutor-deepseek-v3", flags(1, 1, 1, "none", 1)},
                      Case{"mla_dp2", "tutor-deepseek-v3", flags(4, 2, 4, "in_process", 1)},
                      Case{"delta_net_one_rank", "tutor-qwen3.5-moe", flags(1, 1, 1, "none", 1)},
                      Case{"delta_net_dp2", "tutor-qwen3.5-moe", flags(4, 2, 4, "in_process", 1)}),
    [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace lockstep::test
