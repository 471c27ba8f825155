// Faults in what a stage or a backend promises, and in plans that ranks made apart: each small, each caught
// by name, with the edge, the step, the group and the ranks. What is right is proven beside each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "lockstep/planning/agreement.h"
#include "tests/mutations/mutants.h"

namespace lockstep::planning::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Engine {
  explicit Engine(ParallelFlags flags)
      : configuration(*solve(flags, mutation_model(), h200_machine())),
        plans(*make_plans(configuration, mutation_model(), h200_machine())),
        shape(step_shape(plans.grid, configuration.capacity)) {}

  // Uneven replicas, with padding, and an idle one.
  StepPlan step() const {
    std::vector<ReplicaCounts> counts;
    for (int replica = 0; replica < shape.num_replicas; ++replica) {
      ReplicaCounts mine{.num_requests = 1, .num_target_rows = replica == 1 ? 0 : 3 + 2 * replica};
      mine.num_requests = mine.num_target_rows > 0;
      if (mine.num_target_rows > 0) mine.logit_rows = {0, mine.num_target_rows - 1};
      counts.push_back(mine);
    }
    return make_step_plan(7, shape, std::move(counts));
  }
  std::vector<Violation> said(const std::vector<Stage>& chain, const VerifierOptions& options = {}) const {
    const StepPlan step_plan = step();
    return verify(plans.of(step_plan.regime), chain, plans.grid, step_plan, options);
  }

  Configuration configuration;
  Plans plans;
  StepShape shape;
};

// Sums owed over two axes, no exchange; and the worked example, with exchange.
Engine gathered() {
  return Engine(
      {.tp_size = 8, .dp_size = 4, .enable_dp_attention = true, .ep_size = 4, .max_running_requests = 64});
}
Engine exchanged() {
  return Engine({.tp_size = 8,
                 .dp_size = 4,
                 .enable_dp_attention = true,
                 .ep_size = 8,
                 .moe_dense_tp_size = 1,
                 .moe_a2a_backend = "in_process",
                 .max_running_requests = 97});
}

struct StageFault {
  const char* name;
  Engine (*engine)();
  std::function<void(Signature&)> change;  // of every stage of experts
  VerifierOptions options;
  const char* says;
};

const StageFault kStageFaults[] = {
    {"every rank adds the whole shared expert inside the sum (B021)",
     gathered,
     [](Signature& s) { s.shared = SharedExpert::kEveryRank; },
     {},
     "on one rank it is"},
    {"padding is routed (W17)",
     exchanged,
     [](Signature& s) { s.mask = RouterMask::kNone; },
     {},
     "padding is routed: row [0-9]+ of home [0-9]+"},
    {"padding is told by a count, as if real rows were a prefix of all (B039)",
     gathered,
     [](Signature& s) { s.mask = RouterMask::kByCount; },
     {},
     "is routed|is taken for padding"},
    {"expert numbers of the owner's own space (W20)",
     exchanged,
     [](Signature& s) { s.ids = ExpertIds::kLocal; },
     {},
     "on one rank it is"},
    {"a pair has slots for one row (B027)",
     exchanged,
     [](Signature&) {},
     {.slots_of_pair = 1},
     "sends rank [0-9]+ more than the 1 rows"},
    {"the backend needs equal rows, replicas bring what they have",
     exchanged,
     [](Signature&) {},
     {.rows = VerifierOptions::Rows::kEqualPerRank},
     "needs equal rows, rank [0-9]+ brings"},
    {"the backend takes no empty part, a replica is idle (W24)",
     exchanged,
     [](Signature&) {},
     {.zero_rows = VerifierOptions::ZeroRows::kRefused},
     "takes no empty part, rank [0-9]+ brings 0"},
};

TEST(StageFaults, AreCaughtByName) {
  for (const StageFault& fault : kStageFaults) {
    SCOPED_TRACE(fault.name);
    const Engine engine = fault.engine();
    ASSERT_TRUE(engine.said(engine.plans.chain).empty()) << engine.said(engine.plans.chain)[0].says;
    std::vector<Stage> chain = engine.plans.chain;
    for (Stage& stage : chain)
      if (stage.kind == StageKind::kExperts)
        for (Signature& signature : stage.signatures) fault.change(signature);
    const auto found = engine.said(chain, fault.options);
    ASSERT_FALSE(found.empty()) << "slipped through";
    EXPECT_THAT(found[0].says, ContainsRegex(fault.says));
    EXPECT_THAT(found[0].edge, HasSubstr(" -> "));
    EXPECT_FALSE(found[0].ranks.empty());
    std::cout << fault.name << ": " << to_text(found[0]) << '\n';
  }
}

// A whole shared expert is right where each row's sum has one rank that adds it, and where no sum is owed.
TEST(SharedExpert, WholeOnEveryRankIsRightWhereOneRankAddsIt) {
  const auto with = [](const Engine& engine, SharedExpert shared) {
    std::vector<Stage> chain = engine.plans.chain;
    for (Stage& stage : chain)
      for (Signature& signature : stage.signatures) signature.shared = shared;
    return engine.said(chain);
  };
  EXPECT_TRUE(with(gathered(), SharedExpert::kAtHome).empty());
  EXPECT_TRUE(with(exchanged(), SharedExpert::kAtHome).empty());
  EXPECT_TRUE(with(exchanged(), SharedExpert::kEveryRank).empty());
}

// ---- plans that ranks made apart
// ---------------------------------------------------------------------------

struct Apart {
  const char* name;
  std::function<void(Plan&)> change;  // of rank 3's plan
  const char* says;
};

// The first step over a group on or after edge `edge`.
Step& collective(Plan& plan, size_t edge) {
  for (; edge < plan.edges.size(); ++edge)
    for (Step& step : plan.edges[edge].steps)
      if (!step.over.empty()) return step;
  throw std::runtime_error("the plan has no collective");
}
void leave_out(Plan& plan, const Step& which) {
  for (Edge& edge : plan.edges)
    for (size_t at = 0; at < edge.steps.size(); ++at)
      if (edge.steps[at].id == which.id) {
        edge.steps.erase(edge.steps.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      }
}

const Apart kApart[] = {
    {"an idle rank skips a collective (W24)", [](Plan& p) { leave_out(p, Step(collective(p, 1))); },
     "rank 3 with step"},
    {"a rank leaves before the last collective",
     [](Plan& p) { leave_out(p, Step(collective(p, p.edges.size() - 1))); }, "rank 3 with nothing more"},
    {"a rank finds no fused kernel and takes the parts (W27)",
     [](Plan& p) { collective(p, 1).kind = StepKind::kAllReduce; }, "all_reduce"},
    {"a rank reduces over another group (W15)",
     [](Plan& p) { collective(p, 1).over = collective(p, 1).over | AxisSet::of(1); }, "go on|goes on with"},
    {"a rank is one step ahead", [](Plan& p) { collective(p, 1).id += 1; }, "goes on with step"},
};

TEST(RanksApart, WaitForEachOtherAndItIsSaid) {
  const Engine engine = gathered();
  const Plan& right = engine.plans.decode;
  std::vector<Plan> plans(static_cast<size_t>(engine.plans.grid.num_ranks()), right);
  EXPECT_TRUE(check_agreement(engine.plans.grid, plans).empty());
  for (const Apart& fault : kApart) {
    SCOPED_TRACE(fault.name);
    auto apart = plans;
    fault.change(apart[3]);
    const auto found = check_agreement(engine.plans.grid, apart);
    ASSERT_FALSE(found.empty()) << "slipped through";
    EXPECT_THAT(found[0].says, ContainsRegex(fault.says));
    EXPECT_THAT(found[0].says, HasSubstr("rank 3"));
    EXPECT_FALSE(found[0].ranks.empty());
    EXPECT_THAT(found[0].edge, HasSubstr(" -> "));
    std::cout << fault.name << ": " << to_text(found[0]) << '\n';
  }
}

struct StepApart {
  const char* name;
  std::function<void(Engine&)> change;  // how rank 5 sees the configuration
  std::function<void(std::vector<ReplicaCounts>&)> counts;
  const char* says;
};

const StepApart kStepsApart[] = {
    {"a rank replays another bucket (B030)", [](Engine& e) { e.shape.buckets = {8, 64}; },
     [](std::vector<ReplicaCounts>&) {}, "the bucket is 4 on rank 0 and 8 on rank 5"},
    {"a rank runs eagerly while others replay (B035)", [](Engine& e) { e.shape.buckets = {}; },
     [](std::vector<ReplicaCounts>&) {}, "the bucket is 4 on rank 0 and 0 on rank 5"},
    {"a rank takes the step for prefill (W10)",
     [](Engine& e) {
       e.shape.capacity.max_decode_rows = 2;
       e.shape.capacity.max_small_decode_rows = 0;
     },
     [](std::vector<ReplicaCounts>&) {}, "the regime is decode on rank 0 and prefill on rank 5"},
    {"a rank knows only its own replica's rows (B027)", [](Engine&) {},
     [](std::vector<ReplicaCounts>& counts) {
       for (size_t replica = 0; replica < counts.size(); ++replica)
         if (replica != 2) counts[replica] = {};
     },
     "on rank 0 and .* on rank 5"},
    {"a rank counts requests where rows are meant (W18)", [](Engine&) {},
     [](std::vector<ReplicaCounts>& counts) { counts[0].num_requests = 3; }, "on rank 0 and .* on rank 5"},
    {"a rank forgets the drafts (B150)", [](Engine&) {},
     [](std::vector<ReplicaCounts>& counts) { counts[2].num_draft_rows = 4; }, "on rank 0 and .* on rank 5"},
};

TEST(StepPlansApart, AreSaidByTheFirstFieldThatDiffers) {
  for (const StepApart& fault : kStepsApart) {
    SCOPED_TRACE(fault.name);
    Engine engine = exchanged();
    engine.shape.buckets = {4, 64};
    const auto table = [] {
      std::vector<ReplicaCounts> counts(4);
      counts[0] = {.num_requests = 2, .num_target_rows = 4, .logit_rows = {3}};
      counts[2] = {.num_requests = 1, .num_target_rows = 1, .logit_rows = {0}};
      return counts;
    };
    std::vector<StepPlan> plans(8, make_step_plan(1, engine.shape, table()));
    EXPECT_TRUE(check_agreement(plans).empty());
    Engine other = engine;
    fault.change(other);
    auto counts = table();
    fault.counts(counts);
    plans[5] = make_step_plan(1, other.shape, std::move(counts));
    const auto found = check_agreement(plans);
    ASSERT_FALSE(found.empty()) << "slipped through";
    EXPECT_THAT(found[0].says, ContainsRegex(fault.says));
    EXPECT_THAT(found[0].ranks, ::testing::ElementsAre(0, 5));
  }
}

}  // namespace
}  // namespace lockstep::planning::test
