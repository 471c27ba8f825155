// Faults in where rows stand when ranks share prompts in zigzag: each is found before a row moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/mutations/mutants.h"

namespace lockstep::planning::test {
namespace {

struct ZigzagFault {
  const char* name;
  std::function<void(StepPlan&)> change;
  const char* says;
};

const ZigzagFault kZigzagFaults[] = {
    {"rows stand in order although shares are in zigzag", [](StepPlan& p) { p.places.clear(); },
     "places of rows of 0 replicas"},
    {"one replica's shares are contiguous",
     [](StepPlan& p) {
       for (size_t row = 0; row < p.places[0].size(); ++row) p.places[0][row] = static_cast<int32_t>(row);
     },
     "row 3 of replica 0 stands at 3, the counts say 8"},
    {"two rows stand at one place", [](StepPlan& p) { p.places[0][3] = p.places[0][2]; },
     "row 3 of replica 0 stands at 2, the counts say 8"},
    {"a row stands among the padding", [](StepPlan& p) { p.places[0][12] = 13; }, "stands at 13"},
    {"early and late runs are exchanged", [](StepPlan& p) { std::swap(p.places[0][1], p.places[0][12]); },
     "row 1 of replica 0 stands at"},
    {"a row is left out", [](StepPlan& p) { p.places[0].pop_back(); },
     "places of 12 rows, the counts say 13"},
    {"wanted rows are counted at the homes that they would have in order",
     [](StepPlan& p) { p.logit_rows_per_home = {1, 1, 0, 1, 1, 0, 0, 0}; },
     "logit rows of home 1 is 1, the counts say 2"},
    {"the prompts are taken for one", [](StepPlan& p) { p.counts[0].prompt_rows = {12}; },
     "of replica 0 stands at"},
    {"more rows of prompts than rows", [](StepPlan& p) { p.counts[0].prompt_rows = {12, 9}; },
     "21 rows of prompts among 13"},
    {"the shares of a step that decodes", [](StepPlan& p) { p.regime = Regime::kDecode; },
     "places of rows of 2 replicas in a decode step"},
};

TEST(ZigzagFaults, EachIsFound) {
  const auto solved = solve({.tp_size = 8,
                             .dp_size = 2,
                             .enable_dp_attention = true,
                             .ep_size = 8,
                             .moe_a2a_backend = "in_process",
                             .attn_cp_size = 2,
                             .max_running_requests = 8,
                             .chunked_prefill_size = 32},
                            mutation_model(), h200_machine());
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  const auto plans = make_plans(*solved, mutation_model(), h200_machine());
  ASSERT_TRUE(plans.ok());
  const StepShape shape = step_shape(plans->grid, solved->capacity);
  const StepPlan right = make_step_plan(
      3, shape,
      {{.num_requests = 3, .num_target_rows = 13, .logit_rows = {0, 6, 12}, .prompt_rows = {6, 6}},
       {.num_requests = 1, .num_target_rows = 1, .logit_rows = {0}}});
  ASSERT_EQ(right.regime, Regime::kPrefill);
  const auto said_of = [&](const StepPlan& step_plan) {
    return verify(plans->prefill, plans->chain, plans->grid, step_plan);
  };
  EXPECT_TRUE(said_of(right).empty());
  for (const ZigzagFault& fault : kZigzagFaults) {
    StepPlan wrong = right;
    fault.change(wrong);
    wrong.hash = hash_of(wrong);
    const auto found = said_of(wrong);
    ASSERT_FALSE(found.empty()) << fault.name;
    EXPECT_THAT(to_text(found[0]), ::testing::HasSubstr(fault.says)) << fault.name;
  }
}

}  // namespace
}  // namespace lockstep::planning::test
