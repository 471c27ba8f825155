// Step plans that disagree with the table of counts, as others had them: each is found by the verifier before
// a row moves. The step plan that is right is proven beside each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/mutations/mutants.h"

namespace lockstep::planning::test {
namespace {

using ::testing::HasSubstr;

// Four replicas of two ranks, very unequal; dense layers whole, experts exchanged, the head over a replica.
struct Engine {
  Configuration configuration = *solve({.tp_size = 8,
                                        .dp_size = 4,
                                        .enable_dp_attention = true,
                                        .ep_size = 8,
                                        .moe_dense_tp_size = 1,
                                        .enable_dp_lm_head = true,
                                        .moe_a2a_backend = "in_process",
                                        .max_running_requests = 97},
                                       mutation_model(), h200_machine());
  Plans plans = *make_plans(configuration, mutation_model(), h200_machine());
  StepShape shape = step_shape(plans.grid, configuration.capacity);

  std::vector<ReplicaCounts> table() const {
    return {{.num_requests = 3, .num_target_rows = 7, .logit_rows = {0, 3, 6}},
            {.num_requests = 0, .num_target_rows = 0},
            {.num_requests = 1, .num_target_rows = 1, .logit_rows = {0}},
            {.num_requests = 2, .num_target_rows = 4, .logit_rows = {1, 2}}};
  }
  StepPlan right() const { return make_step_plan(5, shape, table()); }
  std::vector<Violation> said_of(const StepPlan& step_plan) const {
    return verify(plans.of(step_plan.regime), plans.chain, plans.grid, step_plan);
  }
};

struct Fault {
  const char* name;
  std::function<void(StepPlan&)> change;
  const char* says;
};

const Fault kFaults[] = {
    // A rank that knows only its own count sizes the exchange from it.
    {"the geometry of replica 2's own rows (B027)", [](StepPlan& p) { p.max_rows_of_any_home = 1; },
     "most rows of any home is 1, the counts say 4"},
    {"the geometry of an idle rank (B027)", [](StepPlan& p) { p.max_rows_of_any_home = 0; },
     "most rows of any home is 0, the counts say 4"},
    {"the geometry of the rows before they are sliced (B023)",
     [](StepPlan& p) { p.max_rows_of_any_home = 8; }, "most rows of any home is 8, the counts say 4"},
    {"only the own count is kept", [](StepPlan& p) { p.counts = {p.counts[0]}; },
     "number of replicas is 1, the counts say 4"},
    {"every replica is taken to be like the own", [](StepPlan& p) { p.counts.assign(4, p.counts[0]); },
     "padded rows of replica 1 is 0, the counts say 8"},
    {"a list of one padded count", [](StepPlan& p) { p.padded_rows = {8}; },
     "number of padded counts is 1, the counts say 4"},
    {"counts a replica for counts a home (B023)", [](StepPlan& p) { p.rows_per_home = {8, 0, 2, 4}; },
     "number of homes is 4, the counts say 8"},
    {"padding is forgotten (B039)", [](StepPlan& p) { p.padded_rows[0] = 7; },
     "padded rows of replica 0 is 7, the counts say 8"},
    {"padding to a multiple of another width (B047)", [](StepPlan& p) { p.padded_rows[3] = 8; },
     "padded rows of replica 3 is 8, the counts say 4"},
    {"one row is given to one rank of two (B041)",
     [](StepPlan& p) {
       p.rows_per_home[4] = 1;
       p.rows_per_home[5] = 0;
     },
     "rows of home 5 is 0, the counts say 1"},
    {"the last home has the rest (B041)",
     [](StepPlan& p) {
       p.rows_per_home[0] = 4;
       p.rows_per_home[1] = 3;
     },
     "rows of home 1 is 3, the counts say 4"},
    {"an idle replica gets a made-up row (W17)",
     [](StepPlan& p) { p.rows_per_home[2] = p.rows_per_home[3] = 1; },
     "rows of home 2 is 1, the counts say 0"},
    {"all wanted logits at the first home",
     [](StepPlan& p) { p.logit_rows_per_home = {3, 0, 0, 0, 1, 0, 2, 0}; },
     "logit rows of home 0 is 3, the counts say 2"},
    {"one wanted row a request is assumed", [](StepPlan& p) { p.logit_rows_per_home[6] = 2; },
     "logit rows of home 6 is 2, the counts say 1"},
    {"a padding row's logits are wanted", [](StepPlan& p) { p.logit_rows_per_home[5] = 1; },
     "logit rows of home 5 is 1, the counts say 0"},
    {"logits are padded", [](StepPlan& p) { p.logit_rows_per_home.assign(8, 2); },
     "logit rows of home 1 is 2, the counts say 1"},
    {"the table changed after the plan was made", [](StepPlan& p) { ++p.counts[2].num_requests; },
     ""},  // nothing else follows from it: only the hash tells
};

TEST(StepPlanFaults, TheRightOneIsProven) {
  const Engine engine;
  const auto found = engine.said_of(engine.right());
  EXPECT_TRUE(found.empty()) << found[0].says;
}

// A fault in how the plan is made: its hash is that of its fields.
TEST(StepPlanFaults, AreFoundInTheFields) {
  const Engine engine;
  for (const Fault& fault : kFaults) {
    if (*fault.says == '\0') continue;
    StepPlan faulty = engine.right();
    fault.change(faulty);
    faulty.hash = hash_of(faulty);
    const auto found = engine.said_of(faulty);
    ASSERT_EQ(found.size(), 1u) << fault.name;
    EXPECT_EQ(found[0].edge, "step plan") << fault.name;
    EXPECT_THAT(found[0].says, HasSubstr(fault.says)) << fault.name;
  }
}

// A fault after the plan was made: the hash that hosts compare does not fit any more.
TEST(StepPlanFaults, AreFoundByTheHash) {
  const Engine engine;
  for (const Fault& fault : kFaults) {
    StepPlan faulty = engine.right();
    fault.change(faulty);
    EXPECT_NE(hash_of(faulty), engine.right().hash) << fault.name;
    EXPECT_EQ(engine.said_of(faulty).size(), 1u) << fault.name;
  }
}

// Hosts that were told different counts make different plans, each right in itself: their hashes say so.
TEST(StepPlanFaults, TwoTablesHaveTwoHashes) {
  const Engine engine;
  auto other = engine.table();
  other[3] = {};  // a host that has not heard of replica 3
  const StepPlan mistaken = make_step_plan(5, engine.shape, other);
  EXPECT_TRUE(engine.said_of(mistaken).empty());
  EXPECT_NE(mistaken.hash, engine.right().hash);
}

// A plan made from one replica's count alone cannot be made: the table must have all (B027, collapsed
// counts).
TEST(StepPlanFaults, AShorterTableMakesNoPlan) {
  const Engine engine;
  EXPECT_THROW(make_step_plan(5, engine.shape, {engine.table()[0]}), Fatal);
}

// A step plan for another grid is refused.
TEST(StepPlanFaults, APlanForAnotherGridIsRefused) {
  const Engine engine;
  const StepShape other{.num_replicas = 2, .ranks_per_replica = 4, .capacity = engine.shape.capacity};
  const StepPlan step_plan = make_step_plan(5, other, {engine.table()[0], engine.table()[3]});
  EXPECT_THAT(engine.said_of(step_plan).at(0).says, HasSubstr("number of replicas is 2, the counts say 4"));
}

// Steps of drafts, whose rows are counted apart. Three drafts a request: the first has the rows that
// verified, the others one a request.
struct DraftingEngine {
  Configuration configuration = *solve({.tp_size = 8,
                                        .dp_size = 4,
                                        .enable_dp_attention = true,
                                        .ep_size = 8,
                                        .moe_a2a_backend = "in_process",
                                        .speculative_algorithm = "NEXTN",
                                        .speculative_num_steps = 3,
                                        .max_running_requests = 97},
                                       mutation_model(), h200_machine());
  Plans plans = *make_plans(configuration, mutation_model(), h200_machine());
  StepShape shape = step_shape(plans.grid, configuration.capacity);

  // What verified: four rows a request of replicas 0 and 3.
  StepPlan verifying() const {
    return make_step_plan(5, shape,
                          {{.num_requests = 3, .num_target_rows = 12, .logit_rows = {0, 1, 2, 3, 4, 11}},
                           {},
                           {},
                           {.num_requests = 1, .num_target_rows = 4, .logit_rows = {0, 1, 2, 3}}});
  }
  StepPlan right() const {
    return make_step_plan(6, shape,
                          {{.num_requests = 3, .num_draft_rows = 3, .logit_rows = {0, 1, 2}},
                           {},
                           {},
                           {.num_requests = 1, .num_draft_rows = 1, .logit_rows = {0}}},
                          Forward::kDraft);
  }
  std::vector<Violation> said_of(const StepPlan& step_plan) const {
    const Plans& of = step_plan.forward == Forward::kDraft ? *plans.draft : plans;
    return verify(of.of(step_plan.regime), of.chain, of.grid, step_plan);
  }
};

const Fault kDraftFaults[] = {
    {"requests are taken for rows (W18)", [](StepPlan& p) { p.padded_rows = {3, 0, 0, 1}; },
     "padded rows of replica 0 is 3, the counts say 4"},
    {"rows of the step before, padded already (B146)",
     [](StepPlan& p) { p.padded_rows = DraftingEngine().verifying().padded_rows; },
     "padded rows of replica 0 is 12, the counts say 4"},
    {"the geometry of the step that verified",
     [](StepPlan& p) { p.max_rows_of_any_home = DraftingEngine().verifying().max_rows_of_any_home; },
     "most rows of any home is 6, the counts say 2"},
    {"homes of the step that verified",
     [](StepPlan& p) { p.rows_per_home = DraftingEngine().verifying().rows_per_home; },
     "rows of home 0 is 6, the counts say 2"},
    {"the logits of all rows that verified",
     [](StepPlan& p) { p.logit_rows_per_home = {4, 2, 0, 0, 0, 0, 2, 2}; },
     "logit rows of home 0 is 4, the counts say 2"},
    {"drafts counted as rows of the target",
     [](StepPlan& p) {
       for (ReplicaCounts& counts : p.counts) std::swap(counts.num_draft_rows, counts.num_target_rows);
     },
     "padded rows of replica 0 is 4, the counts say 0"},
    {"a draft that says it is the target's", [](StepPlan& p) { p.forward = Forward::kTarget; },
     "padded rows of replica 0 is 4, the counts say 0"},
    {"an idle replica is left out (#29144)", [](StepPlan& p) { p.counts.erase(p.counts.begin() + 1); },
     "number of replicas is 3, the counts say 4"},
    {"a row made up for an idle replica", [](StepPlan& p) { p.rows_per_home[2] = p.rows_per_home[3] = 1; },
     "rows of home 2 is 1, the counts say 0"},
    {"the protocol of prefill, for few rows", [](StepPlan& p) { p.protocol = Protocol::kNormal; },
     "the protocol is 1, the counts say 0"},
};

TEST(DraftStepPlanFaults, TheRightOnesAreProven) {
  const DraftingEngine engine;
  for (const StepPlan& step_plan : {engine.verifying(), engine.right()}) {
    const auto found = engine.said_of(step_plan);
    EXPECT_TRUE(found.empty()) << found[0].says;
  }
}

TEST(DraftStepPlanFaults, AreFoundInTheFieldsAndByTheHash) {
  const DraftingEngine engine;
  for (const Fault& fault : kDraftFaults) {
    StepPlan faulty = engine.right();
    fault.change(faulty);
    EXPECT_NE(hash_of(faulty), engine.right().hash) << fault.name;
    EXPECT_EQ(engine.said_of(faulty).size(), 1u) << fault.name;
    faulty.hash = hash_of(faulty);
    const auto found = engine.said_of(faulty);
    ASSERT_EQ(found.size(), 1u) << fault.name;
    EXPECT_THAT(found[0].says, HasSubstr(fault.says)) << fault.name;
  }
}

// More drafts than admission allows are a bug of the caller, not a larger exchange.
TEST(DraftStepPlanFaults, MoreRowsThanAdmittedMakeNoPlan) {
  const DraftingEngine engine;
  const int32_t most = engine.shape.capacity.max_rows;
  EXPECT_THROW(make_step_plan(6, engine.shape, {{.num_draft_rows = most + 1}, {}, {}, {}}, Forward::kDraft),
               Fatal);
  EXPECT_NO_THROW(make_step_plan(6, engine.shape, {{.num_draft_rows = most}, {}, {}, {}}, Forward::kDraft));
}

}  // namespace
}  // namespace lockstep::planning::test
