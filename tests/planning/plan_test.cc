#include "lockstep/planning/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/planning/configuration.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Plans example_plans() {
  const ParallelFlags flags{.tp_size = 4,
                            .dp_size = 2,
                            .enable_dp_attention = true,
                            .ep_size = 4,
                            .moe_dense_tp_size = 1,
                            .enable_dp_lm_head = true,
                            .moe_a2a_backend = "in_process"};
  const auto solved = solve(flags, mixed_model(), h200_machine());
  return *make_plans(*solved, mixed_model(), h200_machine());
}

TEST(Plan, OfEveryConfigurationIsReadBackFromItsText) {
  int num_plans = 0;
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    for_each_flags(ranks, [&](const ParallelFlags& flags) {
      const auto solved = solve(flags, mixed_model(), h200_machine());
      if (!solved) return;
      const auto plans = make_plans(*solved, mixed_model(), h200_machine());
      ASSERT_TRUE(plans.ok());
      for (const Plan* plan : {&plans->decode, &plans->prefill}) {
        const std::string text = to_text(*plan, plans->grid);
        const auto read = plan_from_text(text, plans->grid);
        ASSERT_TRUE(read.ok()) << read.error().message << "\n" << text;
        ASSERT_EQ(*read, *plan) << text;
        EXPECT_EQ(hash_of(*read), hash_of(*plan));
        EXPECT_EQ(to_text(*read, plans->grid), text);
        ++num_plans;
      }
    });
  EXPECT_GT(num_plans, 200);
}

TEST(Plan, ErrorsNameTheLine) {
  const Plans plans = example_plans();
  const RankGrid& grid = plans.grid;
  const std::string edge = "edge | embedding.0 -> attention.0 | Shard(dp) | Shard(dp)\n";
  struct Case {
    std::string text, says;
  };
  const Case cases[] = {
      {edge + "  0 | seed residual | - | Shard(dp)\n",
       "line 2: neither an edge (4 fields) nor a step (5 fields) but 4"},
      {"\n\n" + edge + "  0 | sow residual | - | Shard(dp) | Shard(dp)\n",
       "line 4: unknown step \"sow residual\""},
      {edge + "  0 | seed rest | - | Shard(dp) | Shard(dp)\n", "line 2: unknown value \"rest\""},
      {edge + "  x | seed residual | - | Shard(dp) | Shard(dp)\n", "line 2: not a step's number: \"x\""},
      {edge + "  -1 | seed residual | - | Shard(dp) | Shard(dp)\n", "line 2: not a step's number: \"-1\""},
      {edge + "  0 | seed residual | ep | Shard(dp) | Shard(dp)\n", "line 2: this grid has no axis \"ep\""},
      {edge + "  0 | seed residual | - | Shard(dp) | Shard(ep)\n", "line 2: this grid has no axis \"ep\""},
      {"  0 | seed residual | - | Shard(dp) | Shard(dp)\n", "line 1: neither an edge"},
      {"edge | embedding.0 attention.0 | Shard(dp) | Shard(dp)\n", "line 1: not \"stage -> stage\""},
      {"edge | embedding.0 -> attending.0 | Shard(dp) | Shard(dp)\n", "line 1: unknown stage"},
      {"edge | embedding -> attention.0 | Shard(dp) | Shard(dp)\n", "line 1: unknown stage"},
      {"edge | embedding.0 -> attention.0 | dp | Shard(dp)\n", "line 1: not a layout: \"dp\""},
      {"edge | embedding.0 -> attention.0 | Shard(dp) | \n", "line 1: a layout is missing"},
  };
  for (const Case& c : cases) {
    const auto read = plan_from_text(c.text, grid);
    ASSERT_FALSE(read.ok()) << c.text;
    EXPECT_THAT(read.error().message, StartsWith(c.says)) << c.text;
  }
  EXPECT_TRUE(plan_from_text("", grid).ok());
}

TEST(Plan, JsonHasOneObjectAnEdgeAndAStep) {
  const Plans plans = example_plans();
  const Json json = to_json(plans.decode, plans.grid);
  ASSERT_TRUE(json.is_array());
  ASSERT_EQ(json.size(), plans.decode.edges.size());
  for (size_t at = 0; at < json.size(); ++at) {
    const Edge& edge = plans.decode.edges[at];
    EXPECT_EQ(json[at]["from"], to_text(edge.from));
    EXPECT_EQ(json[at]["to"], to_text(edge.to));
    EXPECT_EQ(*layout_from_text(json[at]["given"].get<std::string>(), plans.grid), edge.given);
    EXPECT_EQ(*layout_from_text(json[at]["needed"].get<std::string>(), plans.grid), edge.needed);
    ASSERT_EQ(json[at]["steps"].size(), edge.steps.size());
    for (size_t i = 0; i < edge.steps.size(); ++i) {
      const Json& step = json[at]["steps"][i];
      std::vector<std::string> keys;
      for (const auto& [key, value] : step.items()) keys.push_back(key);
      EXPECT_EQ(keys, (std::vector<std::string>{"id", "kind", "value", "over", "before", "after"}));
      EXPECT_EQ(step["id"], edge.steps[i].id);
      EXPECT_EQ(step["kind"], name_of(edge.steps[i].kind));
      EXPECT_EQ(*plans.grid.axes_named(step["over"].get<std::string>()), edge.steps[i].over);
    }
  }
  EXPECT_EQ(json[0]["from"], "embedding.0");
  EXPECT_EQ(json[0]["to"], "attention.0");
}

TEST(Plan, TheHashChangesWhenAnyPartOfAnyStepDoes) {
  const Plans plans = example_plans();
  const uint64_t hash = hash_of(plans.decode);
  const AxisSet tp = plans.grid.attention_tp();
  const auto other = [&](Layout layout) {
    using enum Placement;
    return layout.with(tp, layout.at(0) == kShard ? kReplicate : kShard);
  };
  const std::function<void(Step&)> changes[] = {
      [](Step& s) { ++s.id; },
      [](Step& s) { s.kind = s.kind == StepKind::kNorm ? StepKind::kAdd : StepKind::kNorm; },
      [](Step& s) { s.value = s.value == Value::kHidden ? Value::kResidual : Value::kHidden; },
      [&](Step& s) { s.over = s.over == tp ? AxisSet() : tp; },
      [&](Step& s) { s.before = other(s.before); },
      [&](Step& s) { s.after = other(s.after); },
  };
  int num_changes = 0;
  for (size_t e = 0; e < plans.decode.edges.size(); ++e)
    for (size_t s = 0; s < plans.decode.edges[e].steps.size(); ++s)
      for (const auto& change : changes) {
        Plan changed = plans.decode;
        change(changed.edges[e].steps[s]);
        ASSERT_NE(changed, plans.decode);
        EXPECT_NE(hash_of(changed), hash) << e << ' ' << s;
        ++num_changes;
      }
  EXPECT_GT(num_changes, 100);
  Plan moved = plans.decode;  // a step goes over to the next edge
  moved.edges[1].steps.insert(moved.edges[1].steps.begin(), moved.edges[0].steps.back());
  moved.edges[0].steps.pop_back();
  EXPECT_NE(hash_of(moved), hash);
  Plan shorter = plans.decode;
  shorter.edges.pop_back();
  EXPECT_NE(hash_of(shorter), hash);
}

// Two grids can have plans that look alike; what hosts compare must still differ.
TEST(Plan, TheHashOfPlansHoldsTheGrid) {
  const auto hash = [](int ranks) {
    const ParallelFlags flags{.tp_size = ranks};
    const auto solved = solve(flags, mixed_model(), h200_machine());
    return hash_of(*make_plans(*solved, mixed_model(), h200_machine()));
  };
  EXPECT_EQ(hash(2), hash(2));
  EXPECT_NE(hash(2), hash(3));
}

TEST(Plan, FindsTheEdgeIntoAStage) {
  const Plans plans = example_plans();
  EXPECT_EQ(edge_into(plans.decode, {StageKind::kAttention, 0}), 0u);
  EXPECT_EQ(edge_into(plans.decode, {StageKind::kDense, 0}), 1u);
  EXPECT_EQ(edge_into(plans.decode, {StageKind::kExperts, 2}), 5u);
  EXPECT_THROW(edge_into(plans.decode, {StageKind::kExperts, 0}), Fatal);
}

TEST(Plan, ExplainsItsSumOfBytesAndTime) {
  const Plans plans = example_plans();
  const std::string text = explain(plans.prefill, plans.grid, h200_machine(), plans.prefill_load);
  EXPECT_THAT(text, HasSubstr("attention.0 -> dense.0"));
  EXPECT_THAT(text, HasSubstr(fmt::format(
                        "steps: {:.1f} us, {:.0f} bytes out of a rank",
                        total_us(plans.prefill, plans.grid, h200_machine(), plans.prefill_load),
                        total_wire_bytes(plans.prefill, plans.grid, h200_machine(), plans.prefill_load))));
}

}  // namespace
}  // namespace lockstep::planning::test
