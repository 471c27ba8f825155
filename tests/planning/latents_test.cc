// What attention makes of a row alone is a stage: rows come together narrower, where that is cheaper, and
// every fault on that edge is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/planning/prior_art.h"
#include "lockstep/planning/trace.h"
#include "lockstep/planning/verifier.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

using ::testing::HasSubstr;

// Sizes of DeepSeek-V3's attention: 7168 features become 1536 + 512 + 64.
ModelShape wide_model(int latent_width) {
  using enum ModelShape::Ffn;
  ModelShape model = small_model({kDense, kExperts, kExperts});
  model.hidden = 7168;
  model.latent_width = latent_width;
  model.attention_params = 187e6;
  model.latent_params = 7168.0 * latent_width;
  return model;
}

struct PlannedModel {
  Configuration configuration;
  Plans plans;
};
PlannedModel planned_with(int latent_width, const ParallelFlags& flags) {
  const ModelShape model = wide_model(latent_width);
  const auto solved = solve(flags, model, h200_machine());
  return {*solved, *make_plans(*solved, model, h200_machine())};
}

const ParallelFlags kEightRanks{.tp_size = 8, .max_running_requests = 64, .chunked_prefill_size = 8192};

const Edge& into_attention(const Plan& plan, int layer) {
  return plan.edges[edge_into(plan, {StageKind::kAttention, layer})];
}

TEST(Latents, ComeTogetherInPrefillInPlaceOfRows) {
  const auto [configuration, plans] = planned_with(2112, kEightRanks);
  const Edge& edge = into_attention(plans.prefill, 1);
  EXPECT_EQ(edge.from.kind, StageKind::kLatents);
  ASSERT_EQ(edge.steps.size(), 1u);
  EXPECT_EQ(edge.steps[0].kind, StepKind::kAllGather);
  EXPECT_EQ(edge.steps[0].value, Value::kHidden);
  // A row of a few decode steps is not worth a second collective.
  EXPECT_TRUE(into_attention(plans.decode_small, 1).steps.empty());
  EXPECT_TRUE(prove(plans, configuration.capacity).ok());
}

TEST(Latents, SendFewerBytesThanRowsWould) {
  const auto narrow = planned_with(2112, kEightRanks), wide = planned_with(0, kEightRanks);
  const auto bytes = [](const PlannedModel& one, int latent_width) {
    const auto spent = spent_beside_prior_art(one.plans, one.configuration.stages.exchange,
                                              wide_model(latent_width), h200_machine(), Regime::kPrefill);
    return spent.back().bytes;
  };
  // By hand, in rows of 8256 padded: an all-reduce and a reduce-scatter of 7168 features, a gather of 2112.
  const double rows = narrow.plans.prefill_load.rows_per_replica;
  EXPECT_NEAR(bytes(narrow, 2112), 7.0 / 8 * rows * 2 * (3 * 7168 + 2112), 1);
  EXPECT_NEAR(bytes(wide, 0), 7.0 / 8 * rows * 2 * (4 * 7168), 1);
}

TEST(Latents, AreCountedInTheTraceByTheirWidth) {
  const auto [configuration, plans] = planned_with(2112, kEightRanks);
  const StepShape shape = step_shape(plans.grid, configuration.capacity);
  const StepPlan step = make_step_plan(
      0, shape, {{.num_requests = 1, .num_target_rows = 800, .logit_rows = {799}, .prompt_rows = {800}}});
  ASSERT_EQ(step.regime, Regime::kPrefill);
  const auto trace =
      trace_of(plans.prefill, plans.grid, step, {.hidden = 7168, .vocab = 256, .top_k = 3, .latent = 2112});
  int num_seen = 0;
  for (const TracedStep& one : trace[0])
    if (one.edge == "latents.1 -> attention.1") {
      EXPECT_EQ(one.rows_in, 100);
      EXPECT_EQ(one.rows_out, 800);
      EXPECT_EQ(one.bytes, 7 * 100 * 2112 * 2);
      ++num_seen;
    }
  EXPECT_EQ(num_seen, 1);
}

TEST(Latents, FaultsOnTheirEdgeAreFound) {
  const auto [configuration, plans] = planned_with(2112, kEightRanks);
  const StepShape shape = step_shape(plans.grid, configuration.capacity);
  const auto said_of = [&](const std::function<void(Edge&)>& change) {
    Plan wrong = plans.prefill;
    change(wrong.edges[edge_into(wrong, {StageKind::kAttention, 1})]);
    for (const StepPlan& step : probing_step_plans(shape))
      if (const auto found = verify(wrong, plans.chain, plans.grid, step); !found.empty())
        return to_text(found[0]);
    return std::string();
  };
  EXPECT_EQ(said_of([](Edge&) {}), "");
  EXPECT_THAT(said_of([](Edge& edge) { edge.steps.clear(); }), HasSubstr("attention.1"));
  EXPECT_THAT(said_of([](Edge& edge) { edge.steps[0].value = Value::kResidual; }), HasSubstr("attention.1"));
  EXPECT_THAT(said_of([](Edge& edge) { edge.steps[0].kind = StepKind::kAllReduce; }),
              HasSubstr("attention.1"));
  // Latents are no rows to add to the residual.
  EXPECT_THAT(said_of([](Edge& edge) {
                const Layout whole = edge.needed;
                edge.steps.push_back({.id = edge.steps[0].id,
                                      .kind = StepKind::kAdd,
                                      .value = Value::kResidual,
                                      .before = whole,
                                      .after = whole});
              }),
              HasSubstr("attention.1"));
}

}  // namespace
}  // namespace lockstep::planning::test
