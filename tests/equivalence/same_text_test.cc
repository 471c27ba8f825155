// The same greedy text, token for token, whatever else is in the batch, on whichever replica, in whichever
// chunks.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::test {
namespace {

constexpr const char* kModel = "models/tutor-deepseek-v3";
constexpr int kMaxTokens = kSanitized ? 8 : 48;

std::vector<std::vector<int32_t>> prompts(const char* golden = "tests/golden/tutor-deepseek-v3/golden.json") {
  std::vector<std::vector<int32_t>> found;
  for (const Json& entry : read_json_file(golden)) found.push_back(entry.at("input_ids"));
  if (kSanitized) found.resize(3);
  return found;
}

runtime::EngineConfig config_of(planning::ParallelFlags flags) {
  return {.model_directory = repository(kModel), .parallel = std::move(flags)};
}

// Not only the tokens: the logits of every prompt position are bit for bit the same in other chunks.
void expect_chunks_leave_no_trace(const runtime::EngineConfig& config,
                                  const std::vector<std::vector<int32_t>>& prompts) {
  std::optional<std::vector<Outcome>> expected;
  for (const int chunk : {512, 1, 7}) {
    runtime::EngineConfig chunked = config;
    chunked.parallel.chunked_prefill_size = chunk;
    const auto engine = start(chunked);
    std::vector<runtime::Request> requests;
    for (const auto& prompt : prompts) {
      requests.push_back(greedy(prompt, 16));
      requests.back().prompt_top_logits = 4;
    }
    auto outcomes = run_all(*engine, requests);
    if (!expected) {
      expected = std::move(outcomes);
      continue;
    }
    for (size_t at = 0; at < outcomes.size(); ++at) {
      EXPECT_EQ(outcomes[at].ids, (*expected)[at].ids) << "chunks of " << chunk;
      ASSERT_TRUE(outcomes[at].scores.has_value()) << outcomes[at].error;
      EXPECT_EQ(outcomes[at].scores->last_logits, (*expected)[at].scores->last_logits)
          << "chunks of " << chunk;
      EXPECT_EQ(outcomes[at].scores->top_logits, (*expected)[at].scores->top_logits) << "chunks of " << chunk;
    }
  }
}

// Of every kind one; the golden tests and the eval run over all.
std::vector<NamedFlags> some_configurations() {
  const std::vector<std::string> chosen =
      kSanitized
          ? std::vector<std::string>{"scattered_dense_fusion_odd_limit", "fixed_geometry_dense1_dphead"}
          : std::vector<std::string>{"one_rank",
                                     "dp2_ep2_dispatch_dense1_dphead",
                                     "tp4_ep2_dispatch_dense2",
                                     "scattered_dense_fusion_odd_limit",
                                     "fixed_geometry_dense1_dphead",
                                     "tp4_dp2_gather_dense4",
                                     "tp8_dp4_ep2_experts_tp4_dense2"};
  std::vector<NamedFlags> some;
  for (const NamedFlags& named : all_configurations())
    if (std::find(chosen.begin(), chosen.end(), named.name) != chosen.end()) some.push_back(named);
  return some;
}

class SameText : public ::testing::TestWithParam<NamedFlags> {
 protected:
  // Every prompt by itself, one after the other: all other replicas idle.
  static std::vector<std::vector<int32_t>> alone(runtime::Engine& engine) {
    std::vector<std::vector<int32_t>> texts;
    for (const auto& prompt : prompts())
      texts.push_back(run_all(engine, {greedy(prompt, kMaxTokens)}).front().ids);
    return texts;
  }
};

TEST_P(SameText, AloneAndInABatchOf64) {
  const auto engine = start(config_of(GetParam().flags));
  const auto expected = alone(*engine);
  const auto all = prompts();
  std::vector<runtime::Request> batch;
  for (size_t at = 0; at < 64; ++at) batch.push_back(greedy(all[at % all.size()], kMaxTokens));
  const auto outcomes = run_all(*engine, batch);
  for (size_t at = 0; at < outcomes.size(); ++at) {
    EXPECT_EQ(outcomes[at].ids, expected[at % all.size()]) << "request " << at << ": " << outcomes[at].error;
    EXPECT_EQ(outcomes[at].num_final_events, 1);
  }
}

TEST_P(SameText, OnEveryReplicaBesideIdleOnes) {
  const auto engine = start(config_of(GetParam().flags));
  const auto prompt = prompts().front();
  const auto expected = run_all(*engine, {greedy(prompt, kMaxTokens)}).front().ids;
  for (int replica = 0; replica < *GetParam().flags.dp_size; ++replica) {
    runtime::Request request = greedy(prompt, kMaxTokens);
    request.replica = replica;
    EXPECT_EQ(run_all(*engine, {request}).front().ids, expected) << "replica " << replica;
  }
}

TEST_P(SameText, WithVeryUnequalReplicas) {
  const int replicas = *GetParam().flags.dp_size;
  if (replicas == 1) GTEST_SKIP() << "one replica cannot be unequal";
  const auto engine = start(config_of(GetParam().flags));
  const auto expected = alone(*engine);
  const auto all = prompts();
  std::vector<runtime::Request> batch;
  for (size_t at = 0; at < 24; ++at) {
    batch.push_back(greedy(all[at % all.size()], kMaxTokens));
    batch.back().replica = at == 0 ? replicas - 1 : 0;  // all but one on the first; those between stay idle
  }
  const auto outcomes = run_all(*engine, batch);
  for (size_t at = 0; at < outcomes.size(); ++at)
    EXPECT_EQ(outcomes[at].ids, expected[at % all.size()]) << "request " << at;
}

TEST_P(SameText, InOtherChunkSizes) { expect_chunks_leave_no_trace(config_of(GetParam().flags), prompts()); }

// A fast step and its slow twin give the same bits.
TEST_P(SameText, WithAndWithoutEveryPass) {
  const auto all = prompts();
  std::vector<runtime::Request> requests;
  for (const auto& prompt : all) {
    requests.push_back(greedy(prompt, 16));
    requests.back().prompt_top_logits = 1;
  }
  const auto with = run_all(*start(config_of(GetParam().flags)), requests);
  for (const planning::Pass& pass : planning::default_passes()) {
    planning::ParallelFlags flags = GetParam().flags;
    flags.skip_passes = {std::string(pass.name)};
    const auto without = run_all(*start(config_of(flags)), requests);
    for (size_t at = 0; at < requests.size(); ++at) {
      EXPECT_EQ(with[at].ids, without[at].ids) << pass.name;
      EXPECT_EQ(with[at].scores->last_logits, without[at].scores->last_logits) << pass.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Configurations, SameText, ::testing::ValuesIn(some_configurations()),
                         [](const auto& named) { return named.param.name; });

// The same of grouped-query attention, whose prompt and decode rows share one kernel.
class GroupedQuery : public ::testing::TestWithParam<NamedFlags> {};

TEST_P(GroupedQuery, InOtherChunkSizes) {
  for (const char* model : {"qwen3-moe", "glm4-moe"}) {
    SCOPED_TRACE(model);
    const std::string folder = std::string("tests/golden/") + model;
    expect_chunks_leave_no_trace({.model_directory = repository(folder), .parallel = GetParam().flags},
                                 prompts((folder + "/golden.json").c_str()));
  }
}

INSTANTIATE_TEST_SUITE_P(Configurations, GroupedQuery, ::testing::ValuesIn(some_configurations()),
                         [](const auto& named) { return named.param.name; });

// The same of a state that is kept once a sequence: a row continues where the step before left it.
class DeltaNet : public ::testing::TestWithParam<NamedFlags> {};

TEST_P(DeltaNet, InOtherChunkSizes) {
  for (const char* model : {"qwen3.5-moe", "qwen3-next"}) {
    SCOPED_TRACE(model);
    const std::string folder = std::string("tests/golden/") + model;
    expect_chunks_leave_no_trace({.model_directory = repository(folder), .parallel = GetParam().flags},
                                 prompts((folder + "/golden.json").c_str()));
  }
}

// More requests than slots: a sequence starts afresh in the slot of one that has ended.
TEST_P(DeltaNet, AloneAndInABatchOf64) {
  const auto config = [](planning::ParallelFlags flags) {
    return runtime::EngineConfig{.model_directory = repository("models/tutor-qwen3.5-moe"),
                                 .parallel = std::move(flags)};
  };
  const auto all = prompts("tests/golden/tutor-qwen3.5-moe/golden.json");
  const auto engine = start(config(with_max_running(GetParam().flags, 9)));
  std::vector<std::vector<int32_t>> expected;
  for (const auto& prompt : all) expected.push_back(run_all(*engine, {greedy(prompt, 16)}).front().ids);
  std::vector<runtime::Request> batch;
  for (size_t at = 0; at < 64; ++at) batch.push_back(greedy(all[at % all.size()], 16));
  const auto outcomes = run_all(*engine, batch);
  for (size_t at = 0; at < outcomes.size(); ++at)
    EXPECT_EQ(outcomes[at].ids, expected[at % all.size()]) << "request " << at << ": " << outcomes[at].error;
  for (const auto& replica : engine->stats().replicas) EXPECT_EQ(replica.slots_used, 0);
}

INSTANTIATE_TEST_SUITE_P(Configurations, DeltaNet, ::testing::ValuesIn(some_configurations()),
                         [](const auto& named) { return named.param.name; });

// Memory for two sequences only: sequences are preempted and computed again, and still say the same.
class Preemption : public ::testing::TestWithParam<const char*> {};

TEST_P(Preemption, LosesNothing) {
  const std::string model = GetParam();
  const auto all = prompts(("tests/golden/" + model + "/golden.json").c_str());
  runtime::EngineConfig tight{.model_directory = repository("models/" + model),
                              .parallel = flags(4, 2, 4, "in_process", 1)};
  const auto roomy = start(tight);
  tight.max_total_tokens = 450;
  const auto engine = start(tight);
  // Short prompts, which all find room at first, and grow beyond it.
  std::vector<std::vector<int32_t>> brief;
  std::copy_if(all.begin(), all.end(), std::back_inserter(brief),
               [](const auto& ids) { return ids.size() < 60; });
  std::vector<runtime::Request> requests;
  for (size_t at = 0; at < 24; ++at) {
    requests.push_back(greedy(brief[at % brief.size()], 48));
    requests.back().cache_salt = std::to_string(at);  // equal prompts are not to share their pages
  }
  const auto expected = run_all(*roomy, requests), outcomes = run_all(*engine, requests);
  for (size_t at = 0; at < requests.size(); ++at)
    EXPECT_EQ(outcomes[at].ids, expected[at].ids) << "request " << at << ": " << outcomes[at].error;
  EXPECT_GT(engine->stats().preemptions, 0u);
  for (const auto& replica : engine->stats().replicas) EXPECT_EQ(replica.pages_used + replica.slots_used, 0);
}

INSTANTIATE_TEST_SUITE_P(Tutors, Preemption, ::testing::Values("tutor-deepseek-v3", "tutor-qwen3.5-moe"),
                         [](const auto& tutor) { return tutor.index == 0 ? "deepseek" : "qwen"; });

// What sequences keep once is taken from the same share of memory as what they keep for every token.
TEST(Cache, StatesThatDoNotFitAreRefused) {
  const auto engine = runtime::start_engine({.model_directory = repository("models/tutor-qwen3.5-moe"),
                                             .parallel = flags(2, 1, 1, "none", 1),
                                             .mem_fraction_static = 1e-7});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().field, "--max-running-requests");
  EXPECT_NE(engine.error().message.find("64 sequences of a replica keep 0.1 MB each on a rank"),
            std::string::npos)
      << engine.error().message;
}

TEST(Cache, InBf16AnswersTheSameProblems) {
  runtime::EngineConfig config = config_of(flags(2, 2, 2, "in_process", 1));
  config.cache_type = runtime::CacheType::kBF16;
  const auto engine = start(config);
  int same = 0, total = 0;
  for (const Json& entry : read_json_file("tests/golden/tutor-deepseek-v3/golden.json")) {
    runtime::Request request = greedy(entry.at("input_ids"), static_cast<int>(entry.at("greedy_ids").size()));
    request.ignore_eos = true;
    same +=
        run_all(*engine, {request}).front().ids == entry.at("greedy_ids").get<std::vector<int32_t>>() ? 1 : 0;
    ++total;
  }
  EXPECT_EQ(same, total);  // the trained margins are wide; bf16 keeps eight bits
}

}  // namespace
}  // namespace lockstep::test
