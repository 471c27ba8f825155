// Behind mutants.h; and that what is broken elsewhere was right before.
#include "tests/mutations/mutants.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::planning::test {
namespace {

// The layout that a step makes of `before`, from the definitions in plan.h.
Layout result_of(const Step& step, Layout before) {
  using enum Placement;
  switch (step.kind) {
    case StepKind::kAllReduce:
    case StepKind::kAllGather:
    case StepKind::kFusedAllReduceAddNorm:
    case StepKind::kFusedScatterAddNormGather:
      return before.with(step.over, kReplicate);
    case StepKind::kReduceScatter:
    case StepKind::kSlice:
    case StepKind::kColumnsToRows:
      return before.with(step.over, kShard);
    default:
      return before;
  }
}

bool is_move(StepKind kind) {
  switch (kind) {
    case StepKind::kAllReduce:
    case StepKind::kReduceScatter:
    case StepKind::kAllGather:
    case StepKind::kSlice:
    case StepKind::kColumnsToRows:
    case StepKind::kFusedAllReduceAddNorm:
    case StepKind::kFusedScatterAddNormGather:
      return true;
    default:
      return false;
  }
}

bool combines(const Step& step) {
  return step.kind == StepKind::kCombine || step.kind == StepKind::kFusedCombineAdd;
}

// Claims that follow from the steps, whatever the steps are.
void make_consistent(Edge& edge, Layout residual) {
  Layout hidden = edge.given;
  for (const Step& step : edge.steps)
    if (combines(step)) hidden = step.before;
  for (Step& step : edge.steps) {
    if (is_move(step.kind)) {
      Layout& value = step.value == Value::kHidden ? hidden : residual;
      step.before = value;
      value = step.after = result_of(step, value);
      if (step.kind == StepKind::kFusedAllReduceAddNorm) residual = hidden;
    } else if (step.kind == StepKind::kSeed) {
      step.before = step.after = residual = hidden;
    } else if (step.kind == StepKind::kAdd) {
      step.before = step.after = residual;
    } else if (step.kind == StepKind::kNorm) {
      step.before = step.after = hidden = residual;
    } else if (combines(step)) {
      step.before = hidden;
      step.after = hidden = edge.given;
    } else {
      step.before = step.after = hidden;
    }
  }
}

Layout residual_before(const Plan& plan, size_t edge) {
  Layout residual;
  for (size_t at = 0; at < edge; ++at)
    for (const Step& step : plan.edges[at].steps)
      if (step.value == Value::kResidual) residual = step.after;
  return residual;
}

}  // namespace

ModelShape mutation_model() {
  using enum ModelShape::Ffn;
  return {.hidden = 7168,  // wide enough for prefill to go another way than decode
          .vocab = 256,
          .num_heads = 8,
          .layers = {kDense, kDense, kExperts, kDense, kExperts},
          .dense_inter = 96,
          .num_experts = 8,
          .top_k = 2,
          .expert_inter = 32,
          .shared_inter = 32,
          .attention_params = 20000,
          .draft_layers = {kExperts}};
}

std::vector<Subject> subjects_of(const ParallelFlags& flags, const ModelShape& model) {
  std::vector<Subject> subjects;
  const auto solved = solve(flags, model, h200_machine());
  if (!solved) return subjects;
  for (const bool fused : {true, false}) {
    Configuration configuration = *solved;
    if (!fused)
      for (const Pass& pass : default_passes()) configuration.skip_passes.emplace_back(pass.name);
    const auto plans = make_plans(configuration, model, h200_machine());
    const auto add = [&](const Plans& of, Forward forward) {
      auto step_plans = probing_step_plans(step_shape(of.grid, solved->capacity), forward);
      // Uneven replicas, several rows of most homes, padding: finds nearly everything.
      std::rotate(step_plans.begin(), step_plans.begin() + 5, step_plans.end());
      for (const Plan* plan : {&of.decode, &of.prefill}) {
        const bool known = std::any_of(subjects.begin(), subjects.end(),
                                       [&](const Subject& subject) { return subject.plan == *plan; });
        if (known) continue;
        const auto name = fmt::format("tp {} dp {} ep {} dense {} a2a {} head {} {} {} {}", *flags.tp_size,
                                      flags.dp_size.value_or(1), flags.ep_size.value_or(1),
                                      flags.moe_dense_tp_size.value_or(*flags.tp_size),
                                      flags.moe_a2a_backend.value_or("none"),
                                      flags.enable_dp_lm_head ? "dp" : "all", planning::name_of(forward),
                                      plan == &of.decode ? "decode" : "prefill", fused ? "fused" : "unfused");
        subjects.push_back({name, of.grid, of.chain, *plan, step_plans});
      }
    };
    add(*plans, Forward::kTarget);
    if (plans->draft) add(*plans->draft, Forward::kDraft);
  }
  return subjects;
}

std::vector<Subject> chosen_subjects() {
  const ParallelFlags chosen[] = {
      {.tp_size = 2, .dp_size = 2, .enable_dp_attention = true, .moe_dense_tp_size = 2},
      {.tp_size = 4, .ep_size = 2, .moe_dense_tp_size = 1},  // experts over EP and TP: a sum over two axes
      {.tp_size = 4,
       .dp_size = 2,
       .enable_dp_attention = true,
       .ep_size = 4,
       .moe_dense_tp_size = 1,
       .enable_dp_lm_head = true,
       .moe_a2a_backend = "in_process"},  // the design's worked example
      {.tp_size = 4, .dp_size = 2, .enable_dp_attention = true, .ep_size = 4, .moe_dense_tp_size = 4},
      {.tp_size = 4,
       .dp_size = 4,
       .enable_dp_attention = true,
       .ep_size = 4,
       .moe_a2a_backend = "in_process"},
      {.tp_size = 8,
       .dp_size = 2,
       .enable_dp_attention = true,
       .ep_size = 4,
       .moe_dense_tp_size = 1,
       .moe_a2a_backend = "in_process"},  // three axes
      {.tp_size = 6, .dp_size = 3, .enable_dp_attention = true, .ep_size = 3, .moe_dense_tp_size = 2},
      {.tp_size = 4, .ep_size = 2, .embedding_tp_size = 2, .speculative_algorithm = "NEXTN"},
      {.tp_size = 4,
       .dp_size = 2,
       .enable_dp_attention = true,
       .ep_size = 4,
       .moe_a2a_backend = "in_process",
       .speculative_algorithm = "NEXTN"},
  };
  std::vector<Subject> subjects;
  for (ParallelFlags flags : chosen) {
    flags.max_running_requests = 4 * *flags.tp_size + 1;
    flags.chunked_prefill_size = 4096;
    for (Subject& subject : subjects_of(flags, mutation_model())) subjects.push_back(std::move(subject));
  }
  return subjects;
}

std::string_view name_of(Guise guise) {
  constexpr std::string_view kNames[] = {"as written", "consistent", "executed"};
  return kNames[static_cast<size_t>(guise)];
}

Plan in_guise(Plan mutant, size_t edge, Guise guise) {
  if (guise == Guise::kConsistent) make_consistent(mutant.edges[edge], residual_before(mutant, edge));
  uint32_t id = 0;
  for (Edge& each : mutant.edges)
    for (Step& step : each.steps) step.id = id++;
  return mutant;
}

std::optional<Violation> caught(const Subject& subject, const Plan& mutant, Guise guise) {
  const VerifierOptions options{.claims = guise == Guise::kExecuted ? VerifierOptions::Claims::kIgnored
                                                                    : VerifierOptions::Claims::kChecked};
  for (const StepPlan& step_plan : subject.step_plans)
    if (const auto found = verify(mutant, subject.chain, subject.grid, step_plan, options); !found.empty())
      return found[0];
  return std::nullopt;
}

namespace {

TEST(Subjects, AreRightBeforeTheyAreBroken) {
  const auto subjects = chosen_subjects();
  EXPECT_GE(subjects.size(), 12u);
  for (const Subject& subject : subjects)
    for (const Guise guise : {Guise::kAsWritten, Guise::kExecuted}) {
      const auto found = caught(subject, subject.plan, guise);
      EXPECT_FALSE(found) << subject.name << ": " << found->edge << ": " << found->says;
    }
}

// Rewriting the claims of a right plan changes nothing: the tests' own rules agree with the planner's.
TEST(Subjects, HaveTheClaimsThatFollowFromTheirSteps) {
  for (const Subject& subject : chosen_subjects())
    for (size_t edge = 0; edge < subject.plan.edges.size(); ++edge)
      EXPECT_EQ(in_guise(subject.plan, edge, Guise::kConsistent), subject.plan) << subject.name;
}

}  // namespace
}  // namespace lockstep::planning::test
