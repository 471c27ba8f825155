// The executor on real ranks: what happens when a number is not finite, when a rank fails, when nothing is
// there to do.
#include "lockstep/runtime/executor/rank_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "lockstep/base/file.h"
#include "lockstep/models/registry.h"
#include "lockstep/runtime/executor/step_rows.h"
#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGolden = "tests/golden/deepseek-v3";
constexpr WarmUpPages kPages{.page_size = 16, .per_replica = 64};

planning::ParallelFlags four_ranks() {
  return {.tp_size = 4,
          .dp_size = 2,
          .enable_dp_attention = true,
          .ep_size = 4,
          .moe_dense_tp_size = 1,
          .moe_a2a_backend = "in_process"};
}

// A copy of the golden checkpoint in which one bf16 value of a tensor is NaN.
class PoisonedModel {
 public:
  PoisonedModel(const std::string& name, const std::string& tensor, int64_t element)
      : folder_(std::filesystem::temp_directory_path() /
                ("lockstep_poisoned_" + name + "_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    for (const char* file : {"config.json", "generation_config.json"})
      std::filesystem::copy_file(test::repository(std::string(kGolden) + "/" + file), folder_ / file,
                                 std::filesystem::copy_options::overwrite_existing);
    std::string bytes = read_file(test::repository(std::string(kGolden) + "/model.safetensors")).value();
    const auto header = parse_safetensors_header(bytes, bytes.size()).value();
    for (const TensorEntry& entry : header.entries)
      if (entry.name == tensor) {
        const uint16_t nan = 0x7fc0;
        std::memcpy(bytes.data() + header.data_offset + entry.begin + static_cast<uint64_t>(element) * 2,
                    &nan, 2);
        poisoned_ = true;
      }
    std::ofstream(folder_ / "model.safetensors", std::ios::binary) << bytes;
  }
  ~PoisonedModel() { std::filesystem::remove_all(folder_); }
  std::string folder() const { return folder_.string(); }
  bool poisoned() const { return poisoned_; }

 private:
  std::filesystem::path folder_;
  bool poisoned_ = false;
};

// Token 7's embedding is NaN: only the request that holds it may fail, and its error says where.
TEST(NonFinite, EndsTheRequestThatHasItAndNoOther) {
  const PoisonedModel model("embedding", "model.embed_tokens.weight", 7 * 64);
  ASSERT_TRUE(model.poisoned());
  const auto engine = test::start({.model_directory = model.folder(), .parallel = four_ranks()});
  const auto healthy = test::start({.model_directory = test::repository(kGolden), .parallel = four_ranks()});
  std::vector<Request> requests;
  for (int at = 0; at < 8; ++at) {
    requests.push_back(test::greedy({20 + at, at == 3 ? 7 : 99, 50}, 8));
    requests.back().ignore_eos = true;
  }
  const auto outcomes = test::run_all(*engine, requests);
  const auto expected = test::run_all(*healthy, requests);
  EXPECT_EQ(outcomes[3].finish, FinishReason::kError);
  EXPECT_TRUE(outcomes[3].ids.empty());
  EXPECT_THAT(outcomes[3].error, HasSubstr("not finite"));
  EXPECT_THAT(outcomes[3].error, HasSubstr("after embedding.0"));
  EXPECT_THAT(outcomes[3].error, HasSubstr("on rank "));
  EXPECT_THAT(outcomes[3].error, HasSubstr("rows "));
  for (size_t at = 0; at < outcomes.size(); ++at) {
    if (at == 3) continue;
    if (std::find(expected[at].ids.begin(), expected[at].ids.end(), 7) != expected[at].ids.end()) continue;
    EXPECT_EQ(outcomes[at].ids, expected[at].ids) << at << ": " << outcomes[at].error;
  }
  EXPECT_TRUE(engine->health().serving);
  EXPECT_EQ(test::run_all(*engine, {test::greedy({20, 99, 50}, 4)})[0].error, "");
}

TEST(NonFinite, NamesTheLayerOrTheHead) {
  const std::pair<const char*, const char*> cases[] = {
      {"model.layers.1.mlp.shared_experts.up_proj.weight", "after experts.1"},
      {"model.layers.0.mlp.down_proj.weight", "after dense.0"},
      {"model.layers.2.self_attn.o_proj.weight", "after attention.2"},
      {"model.layers.2.mlp.shared_experts.down_proj.weight", "after experts.2"},  // the last layer
      {"lm_head.weight", "at the head"}};
  for (const auto& [tensor, where] : cases) {
    const PoisonedModel model("layer", tensor, 5);
    ASSERT_TRUE(model.poisoned()) << tensor;
    const auto engine = test::start({.model_directory = model.folder(), .parallel = four_ranks()});
    const auto outcome = test::run_all(*engine, {test::greedy({20, 99, 50}, 4)})[0];
    EXPECT_EQ(outcome.finish, FinishReason::kError) << tensor;
    EXPECT_THAT(outcome.error, HasSubstr(where)) << tensor;
  }
}

struct Parts {
  RankExecutorParts parts;
  planning::StepShape shape;
};

Parts golden_parts(const planning::ParallelFlags& parallel = four_ranks(),
                   Device planned_for = Device::kCpu) {
  auto planned =
      plan_engine({.model_directory = test::repository(kGolden), .parallel = parallel, .device = planned_for})
          .value();
  Parts made;
  made.shape = planning::step_shape(planned.plans.grid, planned.configuration.capacity);
  auto checkpoint = Checkpoint::open(test::repository(kGolden)).value();
  auto described = models::describe(test::repository(kGolden)).value();
  made.parts = {.plans = std::make_shared<planning::Plans>(planned.plans),
                .stages = planned.configuration.stages,
                .shape = made.shape,
                .checkpoint = std::make_shared<Checkpoint>(std::move(checkpoint)),
                .description = std::move(described.description),
                .options = {.vocab = planned.model.vocab,
                            .hidden = planned.shape.hidden,
                            .page_size = 16,
                            .pages_per_replica = 64}};
  return made;
}

TEST(RankExecutor, AStepWithoutRowsRunsAndGivesNothing) {
  Parts made = golden_parts();
  const auto executor = make_rank_executor(made.parts).value();
  StepInput input{.plan = planning::make_step_plan(1, made.shape, {{}, {}}), .replicas = {{}, {}}};
  int rows = 0;
  executor->run(input, [&](const LogitRow&) { ++rows; });
  EXPECT_EQ(rows, 0);
}

TEST(RankExecutor, EveryWantedRowIsDeliveredOnce) {
  Parts made = golden_parts();
  const auto executor = make_rank_executor(made.parts).value();
  for (const int32_t rows : {1, 2, 3, 17}) {
    std::mutex mutex;
    std::vector<std::pair<int, int32_t>> seen;
    executor->run(warm_up_step(made.shape, {{.rows = rows, .context = rows}}, kPages),
                  [&](const LogitRow& row) {
                    const std::lock_guard lock(mutex);
                    seen.emplace_back(row.replica, row.row);
                    EXPECT_EQ(row.fault, "");
                  });
    EXPECT_THAT(seen, ::testing::UnorderedElementsAre(std::pair(0, rows - 1), std::pair(1, rows - 1)));
  }
}

// Three prompts and three decode rows; pages are handed out in turn, and again from the first when none are
// left.
TEST(RankExecutor, AWarmUpStepHasSeveralSequences) {
  Parts made = golden_parts();
  const StepInput input = warm_up_step(
      made.shape,
      {{.rows = 17, .context = 17}, {.rows = 2, .context = 2}, {.kind = RowKind::kDecode, .context = 33}},
      {.page_size = 16, .per_replica = 4});
  ASSERT_EQ(input.replicas.size(), 2u);
  for (const auto& sequences : input.replicas) {
    ASSERT_EQ(sequences.size(), 3u);
    EXPECT_THAT(sequences[0].page_table, ::testing::ElementsAre(0, 1));
    EXPECT_THAT(sequences[1].page_table, ::testing::ElementsAre(2));
    EXPECT_THAT(sequences[2].page_table, ::testing::ElementsAre(0, 1, 2));
    EXPECT_EQ(sequences[2].slot, 2);
  }
  for (const auto& counts : input.plan.counts) {
    EXPECT_EQ(counts.num_target_rows, 20);
    EXPECT_THAT(counts.logit_rows, ::testing::ElementsAre(16, 18, 19));
  }
  const auto executor = make_rank_executor(made.parts).value();
  std::atomic<int> rows = 0;
  executor->run(input, [&](const LogitRow& row) { rows += row.fault.empty() ? 1 : 0; });
  EXPECT_EQ(rows, 6);
}

std::map<std::pair<int, int32_t>, std::vector<float>> logits_of(Parts made) {
  StepInput input = warm_up_step(made.shape, {{.rows = 5, .context = 5}, {.rows = 2, .context = 2}}, kPages);
  for (auto& sequences : input.replicas)
    for (SequenceRows& sequence : sequences)
      for (size_t at = 0; at < sequence.token_ids.size(); ++at)
        sequence.token_ids[at] = static_cast<int32_t>(7 + 11 * at);
  std::mutex mutex;
  std::map<std::pair<int, int32_t>, std::vector<float>> logits;
  make_rank_executor(std::move(made.parts)).value()->run(input, [&](const LogitRow& row) {
    const std::lock_guard lock(mutex);
    logits[{row.replica, row.row}].assign(row.logits.begin(), row.logits.end());
  });
  return logits;
}

// What a plan costs decides between plans, not what it means: those for a GPU's costs give on the CPU's ranks
// what the CPU's own give.
TEST(RankExecutor, PlansForAnyDeviceMeanTheSame) {
  for (const test::NamedFlags& named : test::all_configurations()) {
    if (named.flags.tp_size.value_or(1) > 4) continue;
    SCOPED_TRACE(named.name);
    const auto expected = logits_of(golden_parts(named.flags, Device::kCpu));
    const auto found = logits_of(golden_parts(named.flags, Device::kCuda));
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [at, row] : expected) {
      ASSERT_EQ(found.at(at).size(), row.size());
      for (size_t id = 0; id < row.size(); ++id) ASSERT_NEAR(found.at(at)[id], row[id], 1e-4) << id;
    }
  }
}

TEST(RankExecutor, AFailingRankFailsTheStepAndAllLaterOnes) {
  Parts made = golden_parts();
  const auto executor = make_rank_executor(made.parts).value();
  const StepInput input = warm_up_step(made.shape, {{.rows = 3, .context = 3}}, kPages);
  const auto message_of = [&](const LogitSink& sink) -> std::string {
    try {
      executor->run(input, sink);
    } catch (const Fatal& failure) {
      return failure.what();
    }
    return "";
  };
  EXPECT_THAT(message_of([](const LogitRow& row) {
                if (row.replica == 1) throw Fatal("the sink broke");
              }),
              ::testing::AllOf(HasSubstr("rank "), HasSubstr("the sink broke")));
  EXPECT_THAT(message_of([](const LogitRow&) {}), HasSubstr("the sink broke"));
}

TEST(Flatten, PlacesRowsByReplicaWithPaddingBetween) {
  const planning::StepShape shape{
      .num_replicas = 2,
      .ranks_per_replica = 2,
      .capacity = {.max_requests = 4, .max_rows = 8, .max_decode_rows = 4, .max_logit_rows = 4}};
  StepInput input;
  input.replicas = {{{.kind = RowKind::kPrompt, .token_ids = {5, 6}, .context = 10, .page_table = {3}},
                     {.kind = RowKind::kDecode, .token_ids = {7}, .context = 4, .page_table = {1}}},
                    {{.kind = RowKind::kDecode, .token_ids = {9}, .context = 1, .page_table = {0}}}};
  input.plan = planning::make_step_plan(
      1, shape, {{.num_requests = 2, .num_target_rows = 3}, {.num_requests = 1, .num_target_rows = 1}});
  const StepRows rows = flatten(input);
  EXPECT_THAT(rows.token_ids, ::testing::ElementsAre(5, 6, 7, 0, 9, 0));
  EXPECT_THAT(rows.positions, ::testing::ElementsAre(8, 9, 3, 0, 0, 0));
  ASSERT_EQ(rows.replicas[0].prompts.size(), 1u);
  ASSERT_EQ(rows.replicas[0].decodes.size(), 1u);
  EXPECT_EQ(rows.replicas[0].decodes[0].first_row, 2);
  EXPECT_EQ(rows.replicas[1].decodes[0].first_row, 0);
}

}  // namespace
}  // namespace lockstep::runtime
