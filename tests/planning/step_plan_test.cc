#include "lockstep/planning/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace lockstep::planning::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

StepShape shape_of(int replicas, int width, int max_rows = 64) {
  return {.num_replicas = replicas,
          .ranks_per_replica = width,
          .capacity = {.max_requests = 8, .max_rows = max_rows, .max_decode_rows = 8, .max_logit_rows = 8}};
}
ReplicaCounts rows(int32_t count, std::vector<int32_t> logits = {}) {
  return {.num_requests = count > 0 ? 1 : 0, .num_target_rows = count, .logit_rows = std::move(logits)};
}

// The worked example: counts 3 and 1, quantum 2, padded 4 and 2, geometry 2.
TEST(StepPlan, OfTheWorkedExample) {
  const StepShape shape = shape_of(2, 2);
  const StepPlan plan = make_step_plan(7, shape, {rows(3, {2}), rows(1, {0})});
  EXPECT_EQ(plan.step, 7u);
  EXPECT_EQ(plan.regime, Regime::kDecode);
  ASSERT_EQ(plan.counts.size(), 2u);  // the table, never something shorter
  EXPECT_EQ(plan.counts[0].num_target_rows, 3);
  EXPECT_EQ(plan.counts[1].num_target_rows, 1);
  EXPECT_THAT(plan.padded_rows, ElementsAre(4, 2));
  EXPECT_THAT(plan.rows_per_home, ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(plan.logit_rows_per_home, ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(plan.max_rows_of_any_home, 2);
  EXPECT_EQ(home_of(plan, shape, 0, 2).home, 1);
  EXPECT_EQ(home_of(plan, shape, 0, 2).row, 0);
  EXPECT_EQ(home_of(plan, shape, 0, 3).row, 1);  // padding has a home too
  EXPECT_EQ(home_of(plan, shape, 1, 0).home, 2);
}

TEST(StepPlan, KeepsEveryKindOfCount) {
  ReplicaCounts counts{.num_requests = 3, .num_target_rows = 5, .num_draft_rows = 9, .logit_rows = {0, 4}};
  const StepPlan plan = make_step_plan(0, shape_of(1, 4), {counts});
  EXPECT_EQ(plan.counts[0].num_requests, 3);
  EXPECT_EQ(plan.counts[0].num_draft_rows, 9);
  EXPECT_THAT(plan.counts[0].logit_rows, ElementsAre(0, 4));
}

// Property over lengths 0 … 2N + 1: the smallest multiple that holds them.
TEST(StepPlan, PadsToTheQuantumAndNoFurther) {
  for (const int width : {1, 2, 3, 4, 6, 8})
    for (int32_t count = 0; count <= 2 * width + 1; ++count) {
      const StepPlan plan = make_step_plan(0, shape_of(1, width), {rows(count)});
      EXPECT_EQ(plan.padded_rows[0] % width, 0);
      EXPECT_GE(plan.padded_rows[0], count);
      EXPECT_LT(plan.padded_rows[0] - count, width);
      for (const int32_t home : plan.rows_per_home) EXPECT_EQ(home * width, plan.padded_rows[0]);
    }
}

TEST(StepPlan, IdleReplicasTakePartWithNoRows) {
  const StepPlan plan = make_step_plan(0, shape_of(3, 2), {rows(0), rows(5, {4}), rows(0)});
  EXPECT_THAT(plan.padded_rows, ElementsAre(0, 6, 0));
  EXPECT_THAT(plan.rows_per_home, ElementsAre(0, 0, 3, 3, 0, 0));
  EXPECT_THAT(plan.logit_rows_per_home, ElementsAre(0, 0, 0, 1, 0, 0));
  EXPECT_EQ(plan.max_rows_of_any_home, 3);
  const StepPlan idle = make_step_plan(0, shape_of(2, 2), {rows(0), rows(0)});
  EXPECT_EQ(idle.max_rows_of_any_home, 0);
  EXPECT_EQ(idle.regime, Regime::kDecode);
}

// One replica's prompt makes the step a prefill step for all: the regime is of the step, not of a replica.
TEST(StepPlan, TheRegimeFollowsFromTheWholeTable) {
  EXPECT_EQ(make_step_plan(0, shape_of(2, 2), {rows(8), rows(1)}).regime, Regime::kDecode);
  EXPECT_EQ(make_step_plan(0, shape_of(2, 2), {rows(7), rows(8)}).regime, Regime::kDecode);
  EXPECT_EQ(make_step_plan(0, shape_of(2, 2), {rows(9), rows(1)}).regime, Regime::kPrefill);
  EXPECT_EQ(make_step_plan(0, shape_of(2, 2), {rows(1), rows(9)}).regime, Regime::kPrefill);
}

TEST(StepPlan, TheShapeComesFromTheGrid) {
  const RankGrid grid = *RankGrid::make({.num_ranks = 8, .attention_tp = 4, .expert_tp = 2, .dense_tp = 1});
  const StepShape shape = step_shape(grid, {.max_rows = 16});
  EXPECT_EQ(shape.num_replicas, 2);
  EXPECT_EQ(shape.row_quantum(), 4);
  EXPECT_EQ(shape.capacity.max_rows, 16);
}

TEST(StepPlan, WhatExceedsTheCapacityIsFatalWithBothValues) {
  const StepShape shape = shape_of(1, 4, 16);
  const auto make = [&](ReplicaCounts counts) { make_step_plan(0, shape, {std::move(counts)}); };
  EXPECT_NO_THROW(make(rows(16)));
  EXPECT_THAT([&] { make(rows(17)); }, ThrowsMessage<Fatal>(AllOf(HasSubstr("17"), HasSubstr("16"))));
  EXPECT_THAT([&] { make(rows(INT32_MAX)); },
              ThrowsMessage<Fatal>(AllOf(HasSubstr("2147483647"), HasSubstr("16"))));
  EXPECT_THAT([&] { make({.num_requests = 9, .num_target_rows = 9}); },
              ThrowsMessage<Fatal>(AllOf(HasSubstr("9"), HasSubstr("8"), HasSubstr("max_requests"))));
  EXPECT_THAT([&] { make(rows(9, {0, 1, 2, 3, 4, 5, 6, 7, 8})); },
              ThrowsMessage<Fatal>(AllOf(HasSubstr("9"), HasSubstr("8"), HasSubstr("max_logit_rows"))));
  EXPECT_THAT([&] { make(rows(-1)); }, ThrowsMessage<Fatal>(HasSubstr("-1")));
  EXPECT_THAT([&] { make({.num_draft_rows = -3}); }, ThrowsMessage<Fatal>(HasSubstr("-3")));
  EXPECT_THAT([&] { make({.num_requests = -2}); }, ThrowsMessage<Fatal>(HasSubstr("-2")));
}

// A capacity that is no multiple of the quantum cannot be filled beyond the last multiple.
TEST(StepPlan, PaddingMustFitTheCapacityToo) {
  const StepShape shape = shape_of(1, 4, 14);
  EXPECT_NO_THROW(make_step_plan(0, shape, {rows(12)}));
  EXPECT_THAT([&] { make_step_plan(0, shape, {rows(13)}); },
              ThrowsMessage<Fatal>(AllOf(HasSubstr("16"), HasSubstr("14"))));
}

TEST(StepPlan, LogitRowsAscendAndAreReal) {
  const StepShape shape = shape_of(1, 4);
  const auto make = [&](std::vector<int32_t> logits) {
    make_step_plan(0, shape, {rows(5, std::move(logits))});
  };
  EXPECT_NO_THROW(make({0, 4}));
  EXPECT_THAT([&] { make({5}); }, ThrowsMessage<Fatal>(AllOf(HasSubstr("(5 against 5)"))));  // padding
  EXPECT_THROW(make({1, 1}), Fatal);
  EXPECT_THROW(make({3, 2}), Fatal);
  EXPECT_THROW(make({-1}), Fatal);
  EXPECT_THROW(make_step_plan(0, shape, {rows(0, {0})}), Fatal);
}

TEST(StepPlan, EveryReplicaMustBeInTheTable) {
  EXPECT_THAT([] { make_step_plan(0, shape_of(2, 2), {rows(3)}); },
              ThrowsMessage<Fatal>(AllOf(HasSubstr("1"), HasSubstr("2"))));
}

TEST(StepPlan, HomesOutOfRangeAreFatal) {
  const StepShape shape = shape_of(2, 2);
  const StepPlan plan = make_step_plan(0, shape, {rows(3), rows(0)});
  EXPECT_THROW(home_of(plan, shape, 0, 4), Fatal);
  EXPECT_THROW(home_of(plan, shape, 0, -1), Fatal);
  EXPECT_THROW(home_of(plan, shape, 1, 0), Fatal);
  EXPECT_THROW(home_of(plan, shape, 2, 0), Fatal);
}

TEST(StepPlan, HomesOfAllRowsCountUpToTheTable) {
  const StepShape shape = shape_of(3, 4);
  const StepPlan plan = make_step_plan(0, shape, {rows(5), rows(0), rows(9)});
  std::vector<int32_t> seen(12);
  for (int32_t replica = 0; replica < 3; ++replica)
    for (int32_t row = 0; row < plan.padded_rows[replica]; ++row) {
      const HomeRow home = home_of(plan, shape, replica, row);
      EXPECT_EQ(home.row, seen[home.home]++);  // in order, without a gap
    }
  EXPECT_EQ(seen, plan.rows_per_home);
}

TEST(StepPlan, SameInputsSameHash) {
  const auto make = [] { return make_step_plan(3, shape_of(2, 2), {rows(3, {2}), rows(1, {0})}); };
  EXPECT_EQ(make().hash, make().hash);
  EXPECT_EQ(make().hash, hash_of(make()));
}

TEST(StepPlan, TheHashChangesWithEveryField) {
  const StepPlan plan = make_step_plan(3, shape_of(2, 2), {rows(3, {2}), rows(1, {0})});
  const std::function<void(StepPlan&)> changes[] = {
      [](StepPlan& p) { ++p.step; },
      [](StepPlan& p) { p.regime = Regime::kPrefill; },
      [](StepPlan& p) { p.counts.pop_back(); },
      [](StepPlan& p) { p.counts.push_back({}); },
      [](StepPlan& p) { std::swap(p.counts[0], p.counts[1]); },
      [](StepPlan& p) { ++p.counts[1].num_requests; },
      [](StepPlan& p) { ++p.counts[0].num_target_rows; },
      [](StepPlan& p) { ++p.counts[0].num_draft_rows; },
      [](StepPlan& p) { p.counts[0].logit_rows = {1}; },
      [](StepPlan& p) { p.counts[0].logit_rows = {}; },
      [](StepPlan& p) { p.counts[0].logit_rows = {1, 2}; },
      [](StepPlan& p) { p.padded_rows[1] = 4; },
      [](StepPlan& p) { p.padded_rows.pop_back(); },
      [](StepPlan& p) { std::swap(p.rows_per_home[1], p.rows_per_home[2]); },
      [](StepPlan& p) { ++p.logit_rows_per_home[3]; },
      [](StepPlan& p) { ++p.max_rows_of_any_home; },
      // The same numbers, cut elsewhere.
      [](StepPlan& p) {
        p.rows_per_home.insert(p.rows_per_home.begin(), p.padded_rows.back());
        p.padded_rows.pop_back();
      },
  };
  std::vector<uint64_t> hashes = {plan.hash};
  for (const auto& change : changes) {
    StepPlan changed = plan;
    change(changed);
    hashes.push_back(hash_of(changed));
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

// A graph was captured for one number of rows, so all replicas have that many, idle ones too.
TEST(StepPlan, ABucketIsTheSameForEveryReplica) {
  StepShape shape = shape_of(3, 2);
  shape.capacity.max_decode_rows = 16;
  shape.capacity.max_rows = 64;
  shape.buckets = {4, 16};
  const StepPlan small = make_step_plan(0, shape, {rows(3), rows(0), rows(1)});
  EXPECT_EQ(small.bucket, 4);
  EXPECT_EQ(small.padded_rows, (std::vector<int32_t>{4, 4, 4}));
  EXPECT_EQ(small.rows_per_home, (std::vector<int32_t>(6, 2)));
  EXPECT_EQ(small.max_rows_of_any_home, 2);
  EXPECT_EQ(make_step_plan(0, shape, {rows(5), rows(0), rows(1)}).bucket, 16);
  EXPECT_EQ(make_step_plan(0, shape, {rows(0), rows(0), rows(0)}).bucket, 0);
  const StepPlan prefill = make_step_plan(0, shape, {rows(17), rows(0), rows(1)});
  EXPECT_EQ(prefill.bucket, 0);
  EXPECT_EQ(prefill.padded_rows, (std::vector<int32_t>{18, 0, 2}));
}

TEST(StepPlan, RegimeAndProtocolFollowFromTheFullestReplica) {
  StepShape shape = shape_of(2, 2);
  shape.capacity = {.max_requests = 64,
                    .max_rows = 64,
                    .max_decode_rows = 16,
                    .max_logit_rows = 64,
                    .max_small_decode_rows = 2};
  const auto regime = [&](int32_t a, int32_t b) {
    return make_step_plan(0, shape, {rows(a), rows(b)}).regime;
  };
  EXPECT_EQ(regime(0, 0), Regime::kDecodeSmall);
  EXPECT_EQ(regime(1, 2), Regime::kDecodeSmall);
  EXPECT_EQ(regime(1, 3), Regime::kDecode);
  EXPECT_EQ(regime(17, 0), Regime::kPrefill);
  EXPECT_EQ(make_step_plan(0, shape, {rows(3), rows(3)}).protocol, Protocol::kLowLatency);
  EXPECT_EQ(make_step_plan(0, shape, {rows(30), rows(3)}).protocol, Protocol::kNormal);
}

}  // namespace
}  // namespace lockstep::planning::test
