// The cost model against the textbook figures of ring collectives: n members, b bytes a member.
#include "lockstep/planning/cost_model.h"

#include <gtest/gtest.h>

#include "lockstep/planning/configuration.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

using enum Placement;

RankGrid grid_of(int ranks, int attention_tp) {
  return *RankGrid::make({.num_ranks = ranks, .attention_tp = attention_tp, .expert_tp = 1, .dense_tp = 1});
}

Step step_of(StepKind kind, AxisSet over, Layout before, Placement after) {
  return {.kind = kind, .over = over, .before = before, .after = before.with(over, after)};
}

TEST(CostModel, RowsHeldFollowTheShards) {
  const RankGrid grid = grid_of(8, 4);
  EXPECT_DOUBLE_EQ(rows_held(Layout(), grid, 12), 24);
  EXPECT_DOUBLE_EQ(rows_held(Layout().with(grid.attention_dp(), kShard), grid, 12), 12);
  EXPECT_DOUBLE_EQ(rows_held(Layout().with(grid.all(), kShard), grid, 12), 3);
  EXPECT_DOUBLE_EQ(rows_held(Layout().with(grid.all(), kPartial), grid, 12), 24);
}

TEST(CostModel, BytesOfRingCollectives) {
  const Machine machine = h200_machine();  // two bytes a value
  for (const int n : {2, 3, 4, 8, 16}) {
    const RankGrid grid = grid_of(n, n);
    const Load load{.rows_per_replica = 12 * n, .hidden = 100};
    const Layout partial = Layout().with(grid.all(), kPartial), shard = Layout().with(grid.all(), kShard);
    const double whole = 12.0 * n * 100 * 2;
    const auto bytes = [&](const Step& step) { return wire_bytes(step, grid, machine, load); };
    const double all_reduce = bytes(step_of(StepKind::kAllReduce, grid.all(), partial, kReplicate));
    EXPECT_DOUBLE_EQ(all_reduce, 2.0 * (n - 1) / n * whole);
    const double reduce_scatter = bytes(step_of(StepKind::kReduceScatter, grid.all(), partial, kShard));
    EXPECT_DOUBLE_EQ(reduce_scatter, 1.0 * (n - 1) / n * whole);
    const double all_gather = bytes(step_of(StepKind::kAllGather, grid.all(), shard, kReplicate));
    EXPECT_DOUBLE_EQ(all_gather, 1.0 * (n - 1) / n * whole);
    EXPECT_DOUBLE_EQ(all_reduce, reduce_scatter + all_gather);
    EXPECT_DOUBLE_EQ(bytes(step_of(StepKind::kFusedAllReduceAddNorm, grid.all(), partial, kReplicate)),
                     all_reduce);
    EXPECT_DOUBLE_EQ(bytes(step_of(StepKind::kSlice, grid.all(), Layout(), kShard)), 0);
  }
}

TEST(CostModel, ARowIsDispatchedToAtMostItsExpertsAndAtMostToAllRanks) {
  const Machine machine = h200_machine();
  const RankGrid grid = grid_of(8, 1);
  const Layout home = Layout().with(grid.all(), kShard);
  const Step dispatch{.kind = StepKind::kDispatch, .over = grid.all(), .before = home, .after = home};
  const double row = 100 * 2;
  const auto bytes = [&](int top_k) {
    return wire_bytes(dispatch, grid, machine, {.rows_per_replica = 1, .hidden = 100, .top_k = top_k});
  };
  EXPECT_DOUBLE_EQ(bytes(2), 2 * 7.0 / 8 * row);
  EXPECT_DOUBLE_EQ(bytes(8), 7 * row);
  EXPECT_DOUBLE_EQ(bytes(32), 7 * row);
  Step local = dispatch;
  local.over = AxisSet();
  EXPECT_DOUBLE_EQ(wire_bytes(local, grid, machine, {.hidden = 100, .top_k = 2}), 0);
}

// Each of n ranks has 1/n of the logits of all rows and keeps 1/n of the rows.
TEST(CostModel, LogitsMoveTheirColumnsNotHiddenFeatures) {
  const Machine machine = h200_machine();
  const RankGrid grid = grid_of(4, 4);
  const Step join =
      step_of(StepKind::kColumnsToRows, grid.all(), Layout().with(grid.all(), kColumns), kShard);
  const Load load{.rows_per_replica = 8, .hidden = 64, .vocab = 1000};
  EXPECT_DOUBLE_EQ(wire_bytes(join, grid, machine, load), 8 * (1000.0 / 4) * (3.0 / 4) * 2);
}

TEST(CostModel, GrowsWithRows) {
  const RankGrid grid = grid_of(8, 4);
  const Layout partial = Layout().with(grid.all(), kPartial), shard = Layout().with(grid.all(), kShard);
  const Step steps[] = {
      step_of(StepKind::kAllReduce, grid.all(), partial, kReplicate),
      step_of(StepKind::kReduceScatter, grid.attention_tp(), partial, kShard),
      step_of(StepKind::kAllGather, grid.attention_tp(), shard, kReplicate),
      step_of(StepKind::kColumnsToRows, grid.all(), Layout().with(grid.all(), kColumns), kShard),
      step_of(StepKind::kFusedAllReduceAddNorm, grid.attention_tp(), partial, kReplicate),
      step_of(StepKind::kSlice, grid.all(), Layout(), kShard),
      {.kind = StepKind::kSeed, .before = shard, .after = shard},
      {.kind = StepKind::kAdd, .before = shard, .after = shard},
      {.kind = StepKind::kNorm, .before = shard, .after = shard},
      {.kind = StepKind::kSelect, .before = shard, .after = shard},
      {.kind = StepKind::kDispatch, .over = grid.all(), .before = shard, .after = shard},
      {.kind = StepKind::kDispatch, .before = Layout(), .after = Layout()},
      {.kind = StepKind::kCombine, .over = grid.all(), .before = shard, .after = shard},
  };
  const Signature stage{.needs = shard, .gives = shard, .weight_bytes = 1e6, .flops_per_row = 1e7};
  for (const Machine& machine : {h200_machine(), cpu_ranks_machine(8, 2)}) {
    std::vector<double> before(std::size(steps) + 1);
    for (const int rows : {4, 8, 64, 1024, 65536}) {
      const Load load{.rows_per_replica = rows, .hidden = 512, .top_k = 4, .vocab = 1000};
      for (size_t i = 0; i < std::size(steps); ++i) {
        const double us = estimate(steps[i], grid, machine, load).us;
        EXPECT_GT(us, 0) << name_of(steps[i].kind);
        EXPECT_GE(us, before[i]) << name_of(steps[i].kind) << " with " << rows;
        before[i] = us;
      }
      const double us = estimate(stage, grid, machine, load).us;
      EXPECT_GE(us, before.back());
      before.back() = us;
    }
  }
}

// Measured on the machine that the preset is of: all-reduce of one row of 7168 in 9.8 us.
TEST(CostModel, SaysWhatBinds) {
  const RankGrid grid = grid_of(2, 2);
  const Step step =
      step_of(StepKind::kAllReduce, grid.all(), Layout().with(grid.all(), kPartial), kReplicate);
  const Estimate small = estimate(step, grid, h200_machine(), {.rows_per_replica = 1, .hidden = 7168});
  EXPECT_NEAR(small.us, 9.8, 0.2);
  EXPECT_EQ(small.bound_by, "latency");
  EXPECT_EQ(estimate(step, grid, h200_machine(), {.rows_per_replica = 4096, .hidden = 7168}).bound_by,
            "link");
  const Signature weights{.weight_bytes = 1e9, .flops_per_row = 1e6};
  EXPECT_EQ(estimate(weights, grid, h200_machine(), {.rows_per_replica = 1}).bound_by, "memory");
  EXPECT_EQ(estimate(weights, grid, h200_machine(), {.rows_per_replica = 1 << 20}).bound_by, "arithmetic");
}

TEST(CostModel, AfterASelectOnlyWantedRowsCost) {
  const Load load{.rows_per_replica = 512, .hidden = 64, .logit_rows_per_replica = 8};
  EXPECT_EQ(after_select(load).rows_per_replica, 8);
  EXPECT_EQ(after_select(load).hidden, 64);
  EXPECT_EQ(after_select({.rows_per_replica = 4, .logit_rows_per_replica = 8}).rows_per_replica, 4);
  EXPECT_EQ(after_select({.rows_per_replica = 4}).rows_per_replica, 4);
}

// What a layer moves between ranks when its output is reduce-scattered, everything between stages happens on
// scattered rows, and what a stage needs is gathered.
double scattered_bytes(const Edge& edge, const RankGrid& grid, const Machine& machine, const Load& load) {
  const AxisSet owed = edge.given.axes_with(kPartial, grid);
  const AxisSet wanted = edge.needed.axes_with(kReplicate, grid);
  const Layout home = Layout().with(grid.all(), kShard);
  double bytes = 0;
  if (!owed.empty())
    bytes += wire_bytes(step_of(StepKind::kReduceScatter, owed, edge.given, kShard), grid, machine, load);
  if (!wanted.empty())
    bytes += wire_bytes(step_of(StepKind::kAllGather, wanted, home, kReplicate), grid, machine, load);
  return bytes;
}

// Where bytes are what is paid for, no layer of any plan moves more than that.
TEST(CostModel, NoLayerMovesMoreThanReduceScatterAndAllGather) {
  Machine machine = h200_machine();
  machine.collective_us = 0;
  const Load load{.rows_per_replica = 8192, .hidden = 7168, .top_k = 3};
  int num_layers = 0;
  for (const int ranks : {2, 4, 6, 8})
    for_each_flags(ranks, [&](const ParallelFlags& flags) {
      const auto solved = solve(flags, mixed_model(), machine);
      if (!solved) return;
      const RankGrid grid = *RankGrid::make(solved->grid);
      const auto chain = transformer_stages(mixed_model(), grid, solved->stages);
      const auto plan = make_plan(chain, {grid, machine, load});
      ASSERT_TRUE(plan.ok());
      for (size_t at = 1; at + 2 < plan->edges.size(); at += 2) {
        double bytes = 0, scattered = 0;
        for (const size_t e : {at, at + 1}) {
          scattered += scattered_bytes(plan->edges[e], grid, machine, load);
          for (const Step& step : plan->edges[e].steps)
            if (step.kind != StepKind::kDispatch && step.kind != StepKind::kCombine &&
                step.kind != StepKind::kFusedCombineAdd)
              bytes += wire_bytes(step, grid, machine, load);
        }
        EXPECT_LE(bytes, scattered * (1 + 1e-9)) << to_text(flags) << '\n' << to_text(*plan, grid);
        ++num_layers;
      }
    });
  EXPECT_GT(num_layers, 400);
}

}  // namespace
}  // namespace lockstep::planning::test
