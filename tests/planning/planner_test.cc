#include "lockstep/planning/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/planning/configuration.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The design's worked example: four ranks, two replicas of two, dense layers whole on every rank, experts
// over all four with dispatch and combine, the vocabulary over attention-TP. Sizes are DeepSeek-V3's.
struct Example {
  RankGrid grid = *RankGrid::make({.num_ranks = 4, .attention_tp = 2, .expert_tp = 1, .dense_tp = 1});
  ModelShape model{.hidden = 7168,
                   .vocab = 129280,
                   .num_heads = 128,
                   .layers = {ModelShape::Ffn::kDense, ModelShape::Ffn::kExperts},
                   .dense_inter = 18432,
                   .num_experts = 256,
                   .top_k = 8,
                   .expert_inter = 2048,
                   .shared_inter = 2048,
                   .attention_params = 187e6,
                   .bytes_per_weight = 1};
  Machine machine = h200_machine();
  std::vector<Stage> chain =
      transformer_stages(model, grid, {ExchangeBackend::kInProcess, HeadSplit::kAttentionTp});

  // Rows padded to the quantum of two.
  Plan plan(int rows_per_replica, PlannerOptions options = {}) const {
    const Load load{rows_per_replica, model.hidden, model.top_k, 0, model.vocab};
    return *make_plan(chain, {grid, machine, load}, options);
  }
};

// "reduce_scatter hidden over tp: Shard(dp) Partial(tp) -> Shard(dp,tp)"
std::vector<std::string> words(const Plan& plan, const RankGrid& grid, StageRef into) {
  std::vector<std::string> lines;
  for (const Step& step : plan.edges[edge_into(plan, into)].steps)
    lines.push_back(fmt::format("{} {} over {}: {} -> {}", name_of(step.kind),
                                step.value == Value::kHidden ? "hidden" : "residual", grid.name_of(step.over),
                                to_text(step.before, grid), to_text(step.after, grid)));
  return lines;
}

bool has_all_reduce(const Edge& edge) {
  return std::any_of(edge.steps.begin(), edge.steps.end(), [](const Step& step) {
    return step.kind == StepKind::kAllReduce || step.kind == StepKind::kFusedAllReduceAddNorm;
  });
}

TEST(WorkedExample, PrefillTakesPathOne) {
  const Example example;
  const Plan plan = example.plan(4096);
  const auto steps = [&](StageRef into) { return words(plan, example.grid, into); };
  EXPECT_THAT(steps({StageKind::kDense, 0}),
              ElementsAre("reduce_scatter hidden over tp: Shard(dp) Partial(tp) -> Shard(dp,tp)",
                          "slice residual over tp: Shard(dp) -> Shard(dp,tp)",
                          "add residual over -: Shard(dp,tp) -> Shard(dp,tp)",
                          "norm hidden over -: Shard(dp,tp) -> Shard(dp,tp)"));
  EXPECT_THAT(steps({StageKind::kAttention, 1}),
              ElementsAre("add residual over -: Shard(dp,tp) -> Shard(dp,tp)",
                          "norm hidden over -: Shard(dp,tp) -> Shard(dp,tp)",
                          "all_gather hidden over tp: Shard(dp,tp) -> Shard(dp)"));
  EXPECT_THAT(steps({StageKind::kExperts, 1}),
              ElementsAre("reduce_scatter hidden over tp: Shard(dp) Partial(tp) -> Shard(dp,tp)",
                          "add residual over -: Shard(dp,tp) -> Shard(dp,tp)",
                          "norm hidden over -: Shard(dp,tp) -> Shard(dp,tp)",
                          "dispatch hidden over dp,tp: Shard(dp,tp) -> Shard(dp,tp)"));
  EXPECT_THAT(steps({StageKind::kHead, 2}),
              ElementsAre("combine hidden over dp,tp: Shard(dp,tp) -> Shard(dp,tp)",
                          "select hidden over -: Shard(dp,tp) -> Shard(dp,tp)",
                          "add residual over -: Shard(dp,tp) -> Shard(dp,tp)",
                          "norm hidden over -: Shard(dp,tp) -> Shard(dp,tp)",
                          "all_gather hidden over tp: Shard(dp,tp) -> Shard(dp)"));
  EXPECT_FALSE(has_all_reduce(plan.edges[edge_into(plan, {StageKind::kAttention, 1})]));
}

TEST(WorkedExample, DecodeOfOneRowTakesPathTwo) {
  const Example example;
  const Plan plan = example.plan(2, {.skip_passes = all_passes()});
  const auto steps = [&](StageRef into) { return words(plan, example.grid, into); };
  EXPECT_THAT(steps({StageKind::kDense, 0}),
              ElementsAre("all_reduce hidden over tp: Shard(dp) Partial(tp) -> Shard(dp)",
                          "add residual over -: Shard(dp) -> Shard(dp)",
                          "norm hidden over -: Shard(dp) -> Shard(dp)"));
  EXPECT_THAT(steps({StageKind::kAttention, 1}), ElementsAre("add residual over -: Shard(dp) -> Shard(dp)",
                                                             "norm hidden over -: Shard(dp) -> Shard(dp)"));
  EXPECT_FALSE(has_all_reduce(plan.edges[edge_into(plan, {StageKind::kAttention, 1})]));
}

// The all-reduce is there before the dense layer, so it is fused; none is there after it, so none can be.
TEST(WorkedExample, FusesTheAllReduceThatIsThereAndNoOther) {
  const Example example;
  const Plan plan = example.plan(2);
  EXPECT_THAT(words(plan, example.grid, {StageKind::kDense, 0}),
              ElementsAre("fused_all_reduce_add_norm hidden over tp: Shard(dp) Partial(tp) -> Shard(dp)"));
  EXPECT_FALSE(has_all_reduce(plan.edges[edge_into(plan, {StageKind::kAttention, 1})]));
  Example without = example;
  without.machine.fused_all_reduce_add_norm = Machine::FusedAllReduceAddNorm::kNone;
  without.machine.fused_scatter_norm_gather = Machine::FusedScatterNormGather::kNone;
  without.machine.fused_combine_add = Machine::FusedCombineAdd::kNone;
  EXPECT_EQ(without.plan(2), example.plan(2, {.skip_passes = all_passes()}));
}

TEST(WorkedExample, NeverReducesAfterTheDenseLayerUnderAnyLoad) {
  const Example example;
  for (int rows = 2; rows <= 1 << 16; rows *= 2) {
    const Plan plan = example.plan(rows);
    const Edge& after_dense = plan.edges[edge_into(plan, {StageKind::kAttention, 1})];
    EXPECT_TRUE(after_dense.given.axes_with(Placement::kPartial, example.grid).empty());
    EXPECT_FALSE(has_all_reduce(after_dense)) << rows;
  }
}

TEST(Planner, IsDeterministicAndNumbersItsSteps) {
  const Example example;
  for (const int rows : {2, 64, 4096}) {
    const Plan plan = example.plan(rows);
    EXPECT_EQ(plan, Example().plan(rows));
    uint32_t next = 0;
    for (const Edge& edge : plan.edges)
      for (const Step& step : edge.steps) EXPECT_EQ(step.id, next++);
  }
}

// A free machine makes all ways equally cheap in time: fewer steps decide, and the plan is still one.
TEST(Planner, TiesGoToFewerSteps) {
  Example example;
  example.machine = {.name = "free", .link_gbs = 1e30, .memory_gbs = 1e30, .peak_tflops = 1e30};
  const Plan plan = example.plan(64);
  EXPECT_EQ(plan, example.plan(64));
  size_t num_steps = 0;
  for (const Edge& edge : plan.edges) num_steps += edge.steps.size();
  // seed norm | reduce add norm | add norm | reduce-scatter slice add norm dispatch | combine select add norm
  // gather | columns to rows: no way has fewer.
  EXPECT_EQ(num_steps, 2u + 3 + 2 + 5 + 5 + 1);
}

// A machine without a link is a fault of whoever described it, not of the arithmetic.
TEST(Planner, SurvivesAMachineOfZeros) {
  Example example;
  example.machine = {};
  EXPECT_EQ(example.plan(64).edges.size(), example.chain.size() - 1);
}

TEST(Planner, AnUnknownPassIsRefusedByNameAndTheKnownOnesAreListed) {
  const Example example;
  const Load load{2, 7168, 8};
  const auto plan = make_plan(example.chain, {example.grid, example.machine, load},
                              {.skip_passes = {"fuse_all_reduce_add_norm", "unroll_loops"}});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().field, "--skip-pass");
  EXPECT_THAT(plan.error().message, HasSubstr("\"unroll_loops\""));
  for (const Pass& pass : default_passes())
    EXPECT_THAT(plan.error().message, HasSubstr(std::string(pass.name)));
}

TEST(Planner, AStageThatCannotBeReachedIsAnErrorThatNamesIt) {
  Example example;
  Stage& dense = example.chain[2];
  ASSERT_EQ(dense.kind, StageKind::kDense);
  for (Signature& signature : dense.signatures)
    signature.needs = signature.needs.with(example.grid.attention_tp(), Placement::kPartial);
  const auto plan = make_plan(example.chain, {example.grid, example.machine, {2, 7168, 8}});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("attention to dense"));
}

// Skipping a pass changes costs, never a proof.
TEST(Planner, SkippingAnyPassLeavesEveryProofStanding) {
  int num_proven = 0, num_changed = 0;
  for (const Pass& pass : default_passes())
    for (const int ranks : {2, 4, 6})
      for_each_flags(ranks, [&](ParallelFlags flags) {
        const auto with = solve(flags, mixed_model(), h200_machine());
        if (!with) return;
        flags.skip_passes = {std::string(pass.name)};
        const auto without = solve(flags, mixed_model(), h200_machine());
        ASSERT_TRUE(without.ok());
        const auto fast = make_plans(*with, mixed_model(), h200_machine());
        const auto slow = make_plans(*without, mixed_model(), h200_machine());
        for (const auto* plans : {&fast, &slow}) {
          ASSERT_TRUE(plans->ok());
          const auto proof = prove(**plans, with->capacity);
          EXPECT_TRUE(proof.ok()) << to_text(flags) << ": " << proof.error().message;
        }
        for (const Regime regime : kRegimes) {
          const Load& load = fast->load_of(regime);
          const double us_fast = total_us(fast->of(regime), fast->grid, h200_machine(), load);
          const double us_slow = total_us(slow->of(regime), slow->grid, h200_machine(), load);
          EXPECT_LE(us_fast, us_slow + 1e-9);
          num_changed += us_fast < us_slow;
        }
        ++num_proven;
      });
  EXPECT_GT(num_proven, 100);
  EXPECT_GT(num_changed, 50);
}

}  // namespace
}  // namespace lockstep::planning::test
