// The passes one by one: each rewrites the steps that are there, costs no more, and is proven before and
// after.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "lockstep/planning/passes/merge_gathers.h"
#include "lockstep/planning/verifier.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

std::map<StepKind, int> kinds_of(const Plan& plan) {
  std::map<StepKind, int> kinds;
  for (const Edge& edge : plan.edges)
    for (const Step& step : edge.steps) ++kinds[step.kind];
  return kinds;
}

Plans plans_of(const ParallelFlags& flags, const ModelShape& model = mixed_model()) {
  const auto solved = solve(flags, model, h200_machine());
  return *make_plans(*solved, model, h200_machine());
}

ParallelFlags scattered() {
  return {.tp_size = 4,
          .dp_size = 2,
          .enable_dp_attention = true,
          .ep_size = 4,
          .moe_dense_tp_size = 1,
          .moe_a2a_backend = "in_process",
          .chunked_prefill_size = 8192};
}

TEST(Passes, CombineAndAddBecomeOneStepWhereTheyAreNeighbours) {
  ParallelFlags flags = scattered();
  const Plans with = plans_of(flags);
  flags.skip_passes = {"fuse_combine_add"};
  const Plans without = plans_of(flags);
  auto fused = kinds_of(with.prefill), parts = kinds_of(without.prefill);
  EXPECT_GT(fused[StepKind::kFusedCombineAdd], 0);
  EXPECT_EQ(parts[StepKind::kFusedCombineAdd], 0);
  EXPECT_EQ(parts[StepKind::kCombine], fused[StepKind::kCombine] + fused[StepKind::kFusedCombineAdd]);
  EXPECT_EQ(parts[StepKind::kAdd], fused[StepKind::kAdd] + fused[StepKind::kFusedCombineAdd]);
}

// Tensor-parallel layers at prefill: reduce-scatter, add, norm, all-gather on every edge.
TEST(Passes, ScatterNormAndGatherBecomeOneStepWhereTheyAreNeighbours) {
  using enum ModelShape::Ffn;
  ModelShape model = small_model({kDense, kDense, kDense});
  model.hidden = 7168;
  ParallelFlags flags{.tp_size = 4, .chunked_prefill_size = 8192};
  const Plans with = plans_of(flags, model);
  flags.skip_passes = {"fuse_scatter_add_norm_gather"};
  const Plans without = plans_of(flags, model);
  auto fused = kinds_of(with.prefill), parts = kinds_of(without.prefill);
  const int num_fused = fused[StepKind::kFusedScatterAddNormGather];
  EXPECT_EQ(parts[StepKind::kFusedScatterAddNormGather], 0);
  EXPECT_EQ(parts[StepKind::kReduceScatter], fused[StepKind::kReduceScatter] + num_fused);
  EXPECT_EQ(parts[StepKind::kAllGather], fused[StepKind::kAllGather] + num_fused);
  const Load& load = with.prefill_load;
  EXPECT_LE(total_us(with.prefill, with.grid, h200_machine(), load),
            total_us(without.prefill, without.grid, h200_machine(), load));
  EXPECT_NEAR(total_wire_bytes(with.prefill, with.grid, h200_machine(), load),
              total_wire_bytes(without.prefill, without.grid, h200_machine(), load), 1);
}

TEST(Passes, NeighbouringGathersBecomeOne) {
  const RankGrid grid = *RankGrid::make({.num_ranks = 4, .attention_tp = 2, .expert_tp = 1, .dense_tp = 1});
  using enum Placement;
  const AxisSet tp = grid.attention_tp(), dp = grid.attention_dp();
  const Layout home = Layout().with(grid.all(), kShard), replica = home.with(tp, kReplicate);
  const Step first{.kind = StepKind::kAllGather, .over = tp, .before = home, .after = replica};
  const Step second{.kind = StepKind::kAllGather, .over = dp, .before = replica, .after = Layout()};
  Step of_residual = second;
  of_residual.value = Value::kResidual;
  const Machine machine = h200_machine();
  const PlanningContext context{grid, machine, {.rows_per_replica = 2, .hidden = 64}};
  const Edge edge{.from = {}, .to = {}, .given = home, .needed = Layout(), .steps = {first, second}};
  const Plan merged = merge_gathers({{edge}}, context);
  ASSERT_EQ(merged.edges[0].steps.size(), 1u);
  EXPECT_EQ(merged.edges[0].steps[0].over, grid.all());
  EXPECT_EQ(merged.edges[0].steps[0].after, Layout());
  Edge apart = edge;
  apart.steps = {first, of_residual};
  EXPECT_EQ(merge_gathers({{apart}}, context).edges[0].steps.size(), 2u);
}

// The search without its freedom is a plan all the same, and never a cheaper one.
TEST(Passes, ChoosingLayoutsNeverCostsMore) {
  int num_cheaper = 0, num_tried = 0;
  for (const int ranks : {2, 4, 8})
    for_each_flags(ranks, [&](ParallelFlags flags) {
      if (!works(flags, mixed_model())) return;
      flags.skip_passes = all_passes();
      const Plans chosen = plans_of(flags);
      flags.skip_passes.emplace_back(kChooseLayouts);
      const auto solved = solve(flags, mixed_model(), h200_machine());
      const Plans fixed = plans_of(flags);
      for (const Regime regime : kRegimes) {
        const auto us = [&](const Plans& plans) {
          return total_us(plans.of(regime), plans.chain, plans.grid, h200_machine(), plans.load_of(regime));
        };
        EXPECT_LE(us(chosen), us(fixed) + 1e-3) << to_text(flags);
        num_cheaper += us(chosen) < us(fixed) - 1e-3;
      }
      if (++num_tried % 8 == 0) {
        const auto proof = prove(fixed, solved->capacity);
        EXPECT_TRUE(proof.ok()) << proof.error().message;
      }
    });
  EXPECT_GT(num_cheaper, 50);
}

// What a pass makes is proven before the next one sees it: a pass that breaks a plan is named.
TEST(Passes, AreLookedAtOneByOne) {
  const Plans plans = plans_of(scattered());
  std::vector<std::string> seen;
  const Machine machine = h200_machine();
  const auto plan = make_plan(
      plans.chain, {plans.grid, machine, plans.decode_load},
      {.skip_passes = {"merge_gathers"}, .after_pass = [&](std::string_view pass, const Plan&) -> Status {
         seen.emplace_back(pass);
         if (pass == "fuse_combine_add") return invalid_argument("", "seen {}", pass);
         return Done{};
       }});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(seen, ::testing::ElementsAre("choose_layouts", "fuse_all_reduce_add_norm",
                                           "fuse_scatter_add_norm_gather", "fuse_combine_add"));
  const auto solved = solve(scattered(), mixed_model(), machine);
  EXPECT_TRUE(make_plans(*solved, mixed_model(), machine, Proofs::kAfterEveryPass).ok());
}

}  // namespace
}  // namespace lockstep::planning::test
