// What holds for every configuration: whatever flags are typed, there is a refusal or a proven plan; a gather
// and a slice leave a plan as it was; no plan is cheaper than the bytes that it must move.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "lockstep/base/hash.h"
#include "lockstep/planning/lattice.h"
#include "lockstep/planning/verifier.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

constexpr uint64_t kSeed = 20261130;

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int below(int n) { return std::min(n - 1, static_cast<int>(uniform_draw(seed_, next_++) * n)); }

 private:
  uint64_t seed_, next_ = 0;
};

// Mostly widths that could be, sometimes anything.
std::optional<int> some_width(Draws& draws) {
  const int kind = draws.below(40);
  if (kind < 20) return std::nullopt;
  if (kind == 20) return draws.below(2'000'000'000) - 1'000'000'000;
  return 1 << draws.below(3);
}

ParallelFlags some_flags(Draws& draws) {
  ParallelFlags flags;
  for (auto* width :
       {&flags.tp_size, &flags.dp_size, &flags.ep_size, &flags.moe_dense_tp_size, &flags.moe_dp_size,
        &flags.lm_head_tp_size, &flags.embedding_tp_size, &flags.attn_cp_size})
    *width = some_width(draws);
  flags.tp_size = draws.below(12) == 0 ? flags.tp_size : 1 << draws.below(4);
  flags.enable_dp_attention = draws.below(3) > 0;
  flags.enable_dp_lm_head = draws.below(4) == 0;
  if (draws.below(8) == 0) flags.pp_size = some_width(draws);
  if (draws.below(4) == 0) flags.speculative_algorithm = draws.below(5) == 0 ? "STANDALONE" : "NEXTN";
  if (draws.below(8) == 0) flags.speculative_num_steps = draws.below(20);
  if (draws.below(2) == 0)
    flags.shared_experts = std::vector{"split", "whole", "split", "whole", "whole", ""}[draws.below(6)];
  if (draws.below(2) == 0)
    flags.moe_a2a_backend =
        std::vector{"none", "in_process", "in_process_token_major", "none", "x"}[draws.below(5)];
  if (draws.below(3) == 0) flags.max_running_requests = draws.below(50);
  if (draws.below(3) == 0) flags.chunked_prefill_size = draws.below(50);
  if (draws.below(4) == 0) flags.skip_passes = {all_passes()[static_cast<size_t>(draws.below(4))]};
  return flags;
}

TEST(AnyFlags, AreRefusedWithWordsOrProven) {
  int num_refused = 0, num_proven = 0;
  for (uint64_t seed = kSeed; seed < kSeed + 600; ++seed) {
    SCOPED_TRACE(seed);
    Draws draws(seed);
    const ParallelFlags flags = some_flags(draws);
    const auto solved = solve(flags, mixed_model(), h200_machine());
    EXPECT_EQ(solved.ok(), works(flags, mixed_model()));
    if (!solved) {
      ++num_refused;
      EXPECT_FALSE(solved.error().field.empty());
      EXPECT_GT(solved.error().message.size(), 20u);
      continue;
    }
    const auto plans = make_plans(*solved, mixed_model(), h200_machine());
    ASSERT_TRUE(plans.ok()) << plans.error().message;
    const auto proof = prove(*plans, solved->capacity);
    EXPECT_TRUE(proof.ok()) << proof.error().message;
    ++num_proven;
  }
  std::cout << num_proven << " proven, " << num_refused << " refused\n";
  EXPECT_GT(num_proven, 60);
  EXPECT_GT(num_refused, 60);
}

// Everywhere where hidden is in slices after its norm.
TEST(Plans, AGatherAndASliceAreTheIdentity) {
  int num_tried = 0;
  for_each_flags(4, [&](const ParallelFlags& flags) {
    if (!works(flags, mixed_model())) return;
    const auto solved = solve(flags, mixed_model(), h200_machine());
    const auto plans = make_plans(*solved, mixed_model(), h200_machine());
    Plan plan = plans->prefill;
    for (Edge& edge : plan.edges)
      for (size_t at = 0; at < edge.steps.size(); ++at) {
        const Step norm = edge.steps[at];
        const AxisSet sharded = norm.after.axes_with(Placement::kShard, plans->grid);
        if (norm.kind != StepKind::kNorm || sharded.empty()) continue;
        const Layout whole = norm.after.with(sharded, Placement::kReplicate);
        const auto next = edge.steps.begin() + static_cast<std::ptrdiff_t>(at) + 1;
        edge.steps.insert(
            next, {{.kind = StepKind::kAllGather, .over = sharded, .before = norm.after, .after = whole},
                   {.kind = StepKind::kSlice, .over = sharded, .before = whole, .after = norm.after}});
        ++num_tried;
        at += 2;
      }
    uint32_t id = 0;
    for (Edge& edge : plan.edges)
      for (Step& step : edge.steps) step.id = id++;
    for (const StepPlan& step_plan : probing_step_plans(step_shape(plans->grid, solved->capacity))) {
      const auto found = verify(plan, plans->chain, plans->grid, step_plan);
      EXPECT_TRUE(found.empty()) << to_text(found[0]);
    }
  });
  EXPECT_GT(num_tried, 100);
}

// A rank that needs rows which it does not hold must be sent them; a plan says so and pays for it.
TEST(Plans, NeverCostLessThanTheBytesThatMustMove) {
  const Machine machine = h200_machine();
  int num_edges = 0;
  for (const int ranks : {2, 4, 8})
    for_each_flags(ranks, [&](const ParallelFlags& flags) {
      if (!works(flags, mixed_model())) return;
      const auto solved = solve(flags, mixed_model(), machine);
      const auto plans = make_plans(*solved, mixed_model(), machine);
      for (const Regime regime : kRegimes) {
        const Load& load = plans->load_of(regime);
        for (const Edge& edge : plans->of(regime).edges) {
          if (edge.to.kind == StageKind::kHead || edge.to.kind == StageKind::kSampler) continue;
          const double row = 1.0 * load.hidden * machine.bytes_per_value;
          const double missing = rows_held(edge.needed, plans->grid, load.rows_per_replica) -
                                 rows_held(edge.given, plans->grid, load.rows_per_replica);
          double bytes = 0, us = 0;
          for (const Step& step : edge.steps) {
            bytes += wire_bytes(step, plans->grid, machine, load);
            us += estimate(step, plans->grid, machine, load).us;
          }
          EXPECT_GE(bytes, missing * row * (1 - 1e-9)) << to_text(edge, plans->grid);
          EXPECT_GE(us, bytes / (machine.link_gbs * 1e9) * 1e6 * (1 - 1e-9));
          ++num_edges;
        }
      }
    });
  EXPECT_GT(num_edges, 1000);
}

}  // namespace
}  // namespace lockstep::planning::test
