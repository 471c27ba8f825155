// The planner against brute force. The search here knows nothing of paths that decompose: it tries every step
// on every edge, layer by layer of step counts, over the whole state of hidden and residual, and keeps the
// cheapest sum for each state. Only the price of a single step is shared with the planner.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "lockstep/planning/planner.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

constexpr int kMostSteps = 8;  // of one edge, besides combine, select and dispatch

struct Between {
  int phase = 0;  // 0 given, 1 added, 2 normed
  Layout hidden, residual;
  bool has_residual = false;
  auto operator<=>(const Between&) const = default;
};
using Costs = std::map<Between, double>;

class BruteForce {
 public:
  BruteForce(const std::vector<Stage>& chain, const RankGrid& grid, const Machine& machine, const Load& load)
      : chain_(chain), grid_(grid), machine_(machine), load_(load) {}

  double cheapest() {
    Costs standing;
    for (const Signature& signature : chain_[0].signatures)
      keep(standing, {0, signature.gives, {}, false}, estimate(signature, grid_, machine_, load_).us);
    for (size_t at = 1; at < chain_.size(); ++at) standing = cross(at, standing);
    double best = 1e300;
    for (const auto& [state, us] : standing) best = std::min(best, us);
    return best;
  }

 private:
  static void keep(Costs& costs, const Between& state, double us) {
    const auto [at, is_new] = costs.try_emplace(state, us);
    if (!is_new) at->second = std::min(at->second, us);
  }
  double us_of(const Step& step, const Load& load) const { return estimate(step, grid_, machine_, load).us; }

  // Everything that the stage before gave, to everything that stage `at` can be run with.
  Costs cross(size_t at, const Costs& given) {
    const Stage &from = chain_[at - 1], &to = chain_[at];
    const bool selected = to.kind == StageKind::kHead || to.kind == StageKind::kSampler;
    const Load load = selected ? after_select(load_) : load_;
    Costs layer;
    for (const auto& [state, us] : given) {
      double start = us;
      for (const Signature& signature : from.signatures)
        if (from.kind == StageKind::kExperts && signature.gives == state.hidden)
          start += us_of({.kind = StepKind::kCombine,
                          .over = signature.exchange,
                          .before = signature.needs,
                          .after = signature.gives},
                         load_);
      if (to.kind == StageKind::kHead)
        start += us_of({.kind = StepKind::kSelect, .before = state.hidden, .after = state.hidden}, load);
      Between begin = state;
      if (from.kind == StageKind::kLatents) begin.phase = 2;  // made of rows that were normed
      keep(layer, begin, start);
    }
    const Load hidden_load = load_on(from.kind, load);
    Costs reached;
    for (int num_steps = 0; num_steps <= kMostSteps; ++num_steps) {
      Costs next;
      for (const auto& [state, us] : layer) {
        keep(reached, state, us);
        expand(state, us, to.kind, {hidden_load, load}, next);
      }
      layer = std::move(next);
    }
    return enter(to, reached, load);
  }

  Costs enter(const Stage& to, const Costs& reached, const Load& load) const {
    Costs entered;
    for (const auto& [state, us] : reached)
      for (const Signature& signature : to.signatures) {
        if (state.hidden != signature.needs) continue;
        if (state.phase != (to.kind == StageKind::kSampler ? 0 : 2)) continue;
        double total = us + estimate(signature, grid_, machine_, load).us;
        if (to.kind == StageKind::kExperts)
          total += us_of({.kind = StepKind::kDispatch,
                          .over = signature.exchange,
                          .before = signature.needs,
                          .after = signature.needs},
                         load);
        keep(entered, {0, signature.gives, state.residual, true}, total);
      }
    return entered;
  }

  struct EdgeLoads {
    Load hidden, residual;
  };
  void expand(const Between& state, double us, StageKind to, const EdgeLoads& loads, Costs& next) const {
    for (uint32_t bits = 1; bits <= grid_.all().bits(); ++bits)
      for (const auto& [kind, takes, makes] : kMoves)
        for (const Value value : {Value::kHidden, Value::kResidual}) {
          const Layout& before = value == Value::kHidden ? state.hidden : state.residual;
          if (value == Value::kResidual && !state.has_residual) continue;
          bool fits = true;
          for (int axis = 0; axis < grid_.num_axes(); ++axis)
            if (AxisSet(bits).has(axis) && before.at(axis) != takes) fits = false;
          if (!fits) continue;
          Between after = state;
          (value == Value::kHidden ? after.hidden : after.residual) = before.with(AxisSet(bits), makes);
          keep(next, after,
               us + us_of({.kind = kind,
                           .value = value,
                           .over = AxisSet(bits),
                           .before = before,
                           .after = before.with(AxisSet(bits), makes)},
                          value == Value::kHidden ? loads.hidden : loads.residual));
        }
    if (to != StageKind::kSampler) join(state, us, loads.residual, next);
  }

  void join(const Between& state, double us, const Load& load, Costs& next) const {
    for (int axis = 0; axis < grid_.num_axes(); ++axis)
      if (state.hidden.at(axis) == Placement::kPartial || state.hidden.at(axis) == Placement::kColumns)
        return;
    if (state.phase == 0 && (!state.has_residual || state.hidden == state.residual)) {
      const StepKind kind = state.has_residual ? StepKind::kAdd : StepKind::kSeed;
      keep(next, {1, state.hidden, state.hidden, true},
           us + us_of({.kind = kind, .before = state.hidden, .after = state.hidden}, load));
    }
    if (state.phase == 1)
      keep(next, {2, state.residual, state.residual, true},
           us + us_of({.kind = StepKind::kNorm, .before = state.residual, .after = state.residual}, load));
  }

  using enum Placement;
  static constexpr std::tuple<StepKind, Placement, Placement> kMoves[] = {
      {StepKind::kAllReduce, kPartial, kReplicate},
      {StepKind::kReduceScatter, kPartial, kShard},
      {StepKind::kAllGather, kShard, kReplicate},
      {StepKind::kSlice, kReplicate, kShard},
      {StepKind::kColumnsToRows, kColumns, kShard}};
  const std::vector<Stage>& chain_;
  const RankGrid& grid_;
  const Machine& machine_;
  const Load load_;
};

struct World {
  int ranks;
  const char* machine;
};
class Optimality : public ::testing::TestWithParam<World> {};

TEST_P(Optimality, NoSequenceOfStepsIsCheaperThanThePlan) {
  const ModelShape model = small_model({ModelShape::Ffn::kDense, ModelShape::Ffn::kExperts});
  const Machine machine =
      GetParam().machine == std::string("cpu") ? cpu_ranks_machine(GetParam().ranks, 2) : h200_machine();
  int num_compared = 0;
  for_each_flags(GetParam().ranks, [&](const ParallelFlags& flags) {
    const auto solved = solve(flags, model, machine);
    if (!solved) return;
    const RankGrid grid = *RankGrid::make(solved->grid);
    const auto chain = transformer_stages(model, grid, solved->stages);
    // Small rows where latency is all, wide rows where bytes are.
    for (const Load& load : {Load{grid.shape().attention_tp, 64, 3, 0, 256}, Load{384, 7168, 3, 24, 50000}}) {
      const auto plan = make_plan(chain, {grid, machine, load}, {.skip_passes = all_passes()});
      ASSERT_TRUE(plan.ok());
      const double planned = total_us(*plan, chain, grid, machine, load);
      const double best = BruteForce(chain, grid, machine, load).cheapest();
      // The planner counts whole picoseconds.
      EXPECT_NEAR(planned, best, 1e-3) << to_text(flags) << '\n' << to_text(*plan, grid);
      ++num_compared;
    }
  });
  EXPECT_GE(num_compared, 4);
}

// With what attention makes of a row alone as a stage of its own.
TEST(OptimalityOfLatents, NoSequenceOfStepsIsCheaperThanThePlan) {
  ModelShape model = small_model({ModelShape::Ffn::kDense, ModelShape::Ffn::kExperts});
  model.latent_width = 24;
  model.latent_params = 5000;
  int num_apart = 0;
  for (const Machine& machine : {h200_machine(), cpu_ranks_machine(4, 2)})
    for_each_flags(4, [&](const ParallelFlags& flags) {
      const auto solved = solve(flags, model, machine);
      if (!solved) return;
      const RankGrid grid = *RankGrid::make(solved->grid);
      const auto chain = transformer_stages(model, grid, solved->stages);
      for (const Load& load :
           {Load{grid.shape().attention_tp, 64, 3, 0, 256, 0, 24}, Load{384, 7168, 3, 24, 50000, 0, 2112}}) {
        const auto plan = make_plan(chain, {grid, machine, load}, {.skip_passes = all_passes()});
        ASSERT_TRUE(plan.ok());
        EXPECT_NEAR(total_us(*plan, chain, grid, machine, load),
                    BruteForce(chain, grid, machine, load).cheapest(), 1e-3)
            << to_text(flags) << '\n'
            << to_text(*plan, grid);
        for (const Edge& edge : plan->edges)
          num_apart += edge.from.kind == StageKind::kLatents && !edge.steps.empty();
      }
    });
  EXPECT_GT(num_apart, 0) << "rows never come together as latents";
}

INSTANTIATE_TEST_SUITE_P(Worlds, Optimality,
                         ::testing::Values(World{1, "h200"}, World{2, "h200"}, World{2, "cpu"},
                                           World{3, "h200"}, World{4, "h200"}, World{4, "cpu"},
                                           World{6, "h200"}));

// Three axes, each of which may be replicated, sharded or owed.
TEST(OptimalityOfThreeAxes, NoSequenceOfStepsIsCheaperThanThePlan) {
  const ModelShape model = small_model({ModelShape::Ffn::kDense, ModelShape::Ffn::kExperts});
  const Machine machine = h200_machine();
  for (const auto exchange : {ExchangeBackend::kNone, ExchangeBackend::kInProcess}) {
    const RankGrid grid = *RankGrid::make({.num_ranks = 8, .attention_tp = 4, .expert_tp = 2, .dense_tp = 1});
    const auto chain = transformer_stages(model, grid, {exchange, HeadSplit::kAttentionTp});
    const Load load{64, 7168, 3, 8, 50000};
    const auto plan = make_plan(chain, {grid, machine, load}, {.skip_passes = all_passes()});
    ASSERT_TRUE(plan.ok());
    EXPECT_NEAR(total_us(*plan, chain, grid, machine, load),
                BruteForce(chain, grid, machine, load).cheapest(), 1e-3);
  }
}

}  // namespace
}  // namespace lockstep::planning::test
