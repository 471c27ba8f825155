// What the verifier says of plans and step plans that are right, and how repeated layers are left out.
// Faulty plans are in tests/mutations.
#include "lockstep/planning/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lockstep/planning/configuration.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

using ::testing::HasSubstr;

ModelShape deep_model(int num_dense, int num_layers) {
  std::vector<ModelShape::Ffn> layers(num_layers, ModelShape::Ffn::kExperts);
  std::fill_n(layers.begin(), num_dense, ModelShape::Ffn::kDense);
  return small_model(std::move(layers));
}

struct Solved {
  Configuration configuration;
  Plans plans;
};
Solved solved_for(const ModelShape& model, ParallelFlags flags = {.tp_size = 4,
                                                                  .dp_size = 2,
                                                                  .enable_dp_attention = true,
                                                                  .ep_size = 4,
                                                                  .moe_dense_tp_size = 1,
                                                                  .moe_a2a_backend = "in_process"}) {
  const auto configuration = solve(flags, model, h200_machine());
  return {*configuration, *make_plans(*configuration, model, h200_machine())};
}

TEST(Verifier, ProvesDifferentSeedsAndRoutings) {
  const auto [configuration, plans] = solved_for(mixed_model());
  const StepShape shape = step_shape(plans.grid, configuration.capacity);
  for (const StepPlan& step_plan : probing_step_plans(shape))
    for (const uint64_t seed : {1, 2, 77})
      for (const int num_experts : {0, 4, 5, 16})
        for (const int top_k : {1, 3, 8}) {
          const VerifierOptions options{.seed = seed, .num_experts = num_experts, .top_k = top_k};
          const auto found = verify(plans.decode, plans.chain, plans.grid, step_plan, options);
          EXPECT_TRUE(found.empty()) << found[0].edge << ": " << found[0].says;
        }
}

TEST(Verifier, NeedsNoClaimsToFindAPlanRight) {
  const auto [configuration, plans] = solved_for(mixed_model());
  for (const StepPlan& step_plan : probing_step_plans(step_shape(plans.grid, configuration.capacity)))
    for (const Plan* plan : {&plans.decode, &plans.prefill})
      EXPECT_TRUE(
          verify(*plan, plans.chain, plans.grid, step_plan, {.claims = VerifierOptions::Claims::kIgnored})
              .empty());
}

TEST(Verifier, RefusesAPlanOfAnotherChain) {
  const auto [configuration, plans] = solved_for(mixed_model());
  const Solved other = solved_for(deep_model(1, 5));
  const StepPlan step_plan = probing_step_plans(step_shape(plans.grid, configuration.capacity)).back();
  const auto found = verify(plans.decode, other.plans.chain, plans.grid, step_plan);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].says, HasSubstr("attention.3 leads to experts.3"));
  const Solved shorter = solved_for(deep_model(1, 3));
  EXPECT_THAT(verify(plans.decode, shorter.plans.chain, plans.grid, step_plan).at(0).says,
              HasSubstr("12 edges for 9 stages"));
  EXPECT_THAT(verify({}, plans.chain, plans.grid, step_plan).at(0).says, HasSubstr("0 edges for 13 stages"));
}

// The probes hold what the header promises, for every world.
TEST(ProbingStepPlans, CoverTheCasesThatGoWrong) {
  for (const int replicas : {1, 2, 3, 6})
    for (const int width : {1, 2, 3, 4}) {
      const StepShape shape{.num_replicas = replicas,
                            .ranks_per_replica = width,
                            .capacity = {.max_requests = 4 * width,
                                         .max_rows = 8 * width,
                                         .max_decode_rows = 4 * width,
                                         .max_logit_rows = 8 * width}};
      std::set<std::string> seen;
      for (const StepPlan& plan : probing_step_plans(shape)) {
        int num_idle = 0, num_rows = 0, num_wanted = 0;
        std::set<int32_t> different;
        for (const ReplicaCounts& counts : plan.counts) {
          num_idle += counts.num_target_rows == 0;
          num_rows += counts.num_target_rows;
          num_wanted += static_cast<int>(counts.logit_rows.size());
          different.insert(counts.num_target_rows);
          if (counts.num_target_rows % width != 0) seen.insert("padding");
          if (counts.num_target_rows >= 2 * width) seen.insert("several rows of every home");
        }
        if (num_rows == 0) seen.insert("nothing");
        if (num_rows == 1) seen.insert("one row");
        if (num_idle > 0 && num_idle < replicas) seen.insert("an idle replica");
        if (different.size() > 1) seen.insert("uneven");
        if (num_rows > 0 && num_wanted == 0) seen.insert("no logits");
        if (num_wanted > 0 && num_wanted < num_rows) seen.insert("some logits");
        EXPECT_EQ(plan.hash, hash_of(plan));
      }
      std::set<std::string> wanted = {"nothing", "one row", "several rows of every home", "no logits",
                                      "some logits"};
      if (width > 1) wanted.insert("padding");
      if (replicas > 1) wanted.insert({"an idle replica", "uneven"});
      EXPECT_EQ(seen, wanted) << replicas << " replicas of " << width;
    }
}

TEST(WithoutRepeats, KeepsOneOfEveryKindOfEdge) {
  const ModelShape model = deep_model(3, 61);
  const auto [configuration, plans] = solved_for(model);
  ASSERT_EQ(plans.prefill.edges.size(), 124u);
  const ShortenedPlan shortened = without_repeats(plans.prefill, plans.chain, plans.grid);
  // embedding, attention, dense, attention, dense again (the residual is no longer as the embedding left it),
  // attention, experts, attention, experts, head, sampler, at most.
  EXPECT_LE(shortened.plan.edges.size(), 12u);
  EXPECT_GE(shortened.plan.edges.size(), 7u);
  ASSERT_EQ(shortened.chain.size(), shortened.plan.edges.size() + 1);
  EXPECT_EQ(shortened.chain.front().kind, StageKind::kEmbedding);
  EXPECT_EQ(shortened.chain.back().kind, StageKind::kSampler);
  EXPECT_TRUE(check_structure(shortened.plan, shortened.chain, plans.grid).empty());
  for (const StepPlan& step_plan : probing_step_plans(step_shape(plans.grid, configuration.capacity))) {
    EXPECT_TRUE(verify(shortened.plan, shortened.chain, plans.grid, step_plan).empty());
    EXPECT_TRUE(verify(plans.prefill, plans.chain, plans.grid, step_plan).empty());
  }
}

TEST(WithoutRepeats, LeavesAPlanWithoutRepeatsAlone) {
  const auto [configuration, plans] = solved_for(deep_model(1, 2));
  const ShortenedPlan shortened = without_repeats(plans.prefill, plans.chain, plans.grid);
  EXPECT_EQ(shortened.plan, plans.prefill);
}

// One wrong step in any layer of a deep model: its edge is unlike the others, is kept, and is found, under
// its own name.
TEST(WithoutRepeats, AFaultInAnyLayerIsKeptAndFound) {
  const ModelShape model = deep_model(3, 61);
  const Solved solved = solved_for(model);
  for (size_t e = 0; e < solved.plans.prefill.edges.size(); ++e) {
    Plans plans = solved.plans;
    Edge& edge = plans.prefill.edges[e];
    edge.steps.erase(edge.steps.begin() + static_cast<std::ptrdiff_t>(e % edge.steps.size()));
    const auto proof = prove(plans, solved.configuration.capacity);
    ASSERT_FALSE(proof.ok()) << to_text(edge, plans.grid);
    if (edge.steps.empty()) continue;
    EXPECT_THAT(proof.error().message,
                HasSubstr("prefill plan fails its proof at " + to_text(edge.from) + " -> "))
        << to_text(edge, plans.grid);
  }
}

// On every configuration the short proof and the long one agree, on the plan and on a broken copy of it.
TEST(WithoutRepeats, AgreesWithTheWholePlanOnEveryConfiguration) {
  const ModelShape model = deep_model(2, 8);
  int num_compared = 0;
  for (const int ranks : {2, 4, 6})
    for_each_flags(ranks, [&](const ParallelFlags& flags) {
      const auto configuration = solve(flags, model, h200_machine());
      if (!configuration) return;
      Plans plans = *make_plans(*configuration, model, h200_machine());
      const StepPlan step_plan = probing_step_plans(step_shape(plans.grid, configuration->capacity))[5];
      for (const size_t broken : {size_t{99}, size_t{9}, size_t{14}}) {
        Plan plan = plans.decode;
        if (broken < plan.edges.size()) plan.edges[broken].steps.pop_back();
        const ShortenedPlan shortened = without_repeats(plan, plans.chain, plans.grid);
        const auto whole = verify(plan, plans.chain, plans.grid, step_plan);
        const auto part = verify(shortened.plan, shortened.chain, plans.grid, step_plan);
        EXPECT_EQ(whole.empty(), part.empty()) << to_text(flags) << ' ' << broken;
        EXPECT_EQ(whole.empty(), broken == 99) << to_text(flags) << ' ' << broken;
        ++num_compared;
      }
    });
  EXPECT_GT(num_compared, 200);
}

}  // namespace
}  // namespace lockstep::planning::test
