// The plans of a configuration and their proof.
#include <algorithm>

#include "lockstep/base/hash.h"
#include "lockstep/planning/configuration.h"
#include "lockstep/planning/verifier.h"

namespace lockstep::planning {
namespace {

Error fault_of(Regime regime, const Plan& plan, const Violation& violation) {
  // Layers that repeat others were left out, so an edge may have been named for a neighbour: its step knows.
  Violation here = violation;
  for (const Edge& edge : plan.edges)
    for (const Step& step : edge.steps)
      if (step.id == violation.step) here.edge = to_text(edge.from) + " -> " + to_text(edge.to);
  return {ErrorCode::kInternal,
          fmt::format("the {} plan fails its proof at {}", name_of(regime), to_text(here)), ""};
}

Status prove_one(Regime regime, const Plan& plan, const Plans& plans, const Capacity& capacity,
                 Forward forward) {
  if (const auto found = check_structure(plan, plans.chain, plans.grid); !found.empty())
    return fault_of(regime, plan, found[0]);
  const ShortenedPlan shortened = without_repeats(plan, plans.chain, plans.grid);
  for (const StepPlan& step_plan : probing_step_plans(step_shape(plans.grid, capacity), forward))
    if (const auto found = verify(shortened.plan, shortened.chain, plans.grid, step_plan); !found.empty())
      return fault_of(regime, plan, found[0]);
  return Done{};
}

// The plans of one chain: the model's, or that of what drafts.
Result<Plans> plans_of_chain(std::vector<Stage> chain, const RankGrid& grid,
                             const Configuration& configuration, const ModelShape& model,
                             const Machine& machine, Proofs proofs, Forward forward) {
  const Capacity& capacity = configuration.capacity;
  const auto load = [&](Regime regime) { return load_of(regime, capacity, model); };
  Plans plans{grid,
              std::move(chain),
              load(Regime::kDecode),
              load(Regime::kPrefill),
              {},
              {},
              load(Regime::kDecodeSmall),
              {}};
  const auto make = [&](Regime regime, Plan& plan) -> Status {
    PlannerOptions options{.skip_passes = configuration.skip_passes};
    if (proofs == Proofs::kAfterEveryPass)
      options.after_pass = [&](std::string_view pass, const Plan& made) -> Status {
        Status proof = prove_one(regime, made, plans, capacity, forward);
        if (proof) return proof;
        return Error{ErrorCode::kInternal, fmt::format("after {}: {}", pass, proof.error().message), ""};
      };
    auto made = make_plan(plans.chain, {plans.grid, machine, plans.load_of(regime)}, options);
    if (!made) return made.error();
    plan = *std::move(made);
    return Done{};
  };
  if (auto status = make(Regime::kDecode, plans.decode); !status) return status.error();
  if (auto status = make(Regime::kPrefill, plans.prefill); !status) return status.error();
  // Where one row a rank is all that ever decodes, its plan is the one for decode.
  plans.decode_small = plans.decode;
  if (capacity.max_small_decode_rows > 0)
    if (auto status = make(Regime::kDecodeSmall, plans.decode_small); !status) return status.error();
  return plans;
}

Status prove_all(const Plans& plans, const Capacity& capacity, Forward forward) {
  for (const Regime regime : kRegimes) {
    const Plan& plan = plans.of(regime);
    bool is_proven = false;
    for (const Regime earlier : kRegimes) {
      if (earlier == regime) break;
      is_proven = is_proven || plans.of(earlier) == plan;
    }
    if (is_proven) continue;
    if (auto status = prove_one(regime, plan, plans, capacity, forward); !status) return status;
  }
  return Done{};
}

}  // namespace

Load load_of(Regime regime, const Capacity& capacity, const ModelShape& model) {
  Load load{.hidden = model.hidden,
            .top_k = std::max(1, model.top_k),
            .vocab = model.vocab,
            .latent = model.latent_width};
  switch (regime) {
    case Regime::kDecodeSmall:
      load.rows_per_replica = std::max(1, capacity.max_small_decode_rows);
      break;
    case Regime::kDecode:
      load.rows_per_replica = capacity.max_decode_rows;
      break;
    // A decode step wants the logits of all its rows, a prefill step of one row a request at most.
    case Regime::kPrefill:
      load.rows_per_replica = capacity.max_rows;
      load.logit_rows_per_replica = capacity.max_requests;
      break;
  }
  return load;
}

Result<Plans> make_plans(const Configuration& configuration, const ModelShape& model, const Machine& machine,
                         Proofs proofs) {
  auto grid = RankGrid::make(configuration.grid);
  if (!grid) return grid.error();
  const auto plans_of = [&](std::vector<Stage> chain, Forward forward) {
    return plans_of_chain(std::move(chain), *grid, configuration, model, machine, proofs, forward);
  };
  auto plans = plans_of(transformer_stages(model, *grid, configuration.stages), Forward::kTarget);
  if (!plans || configuration.stages.drafting == Drafting::kOff) return plans;
  auto draft = plans_of(draft_stages(model, *grid, configuration.stages), Forward::kDraft);
  if (!draft) return draft.error();
  plans->draft = std::make_shared<const Plans>(*std::move(draft));
  return plans;
}

uint64_t hash_of(const Plans& plans) {
  const GridShape& grid = plans.grid.shape();
  Hasher hasher;
  for (const int width : {grid.num_ranks, grid.attention_tp, grid.expert_tp, grid.dense_tp, grid.moe_dp,
                          grid.head_tp, grid.embedding_tp, grid.attn_cp})
    hasher.add(static_cast<uint64_t>(width));
  hasher.add(static_cast<uint64_t>(grid.row_shares));
  for (const Regime regime : kRegimes) hasher.add(hash_of(plans.of(regime)));
  if (plans.draft) hasher.add(hash_of(*plans.draft));
  return hasher.value();
}

Status prove(const Plans& plans, const Capacity& capacity) {
  if (auto status = prove_all(plans, capacity, Forward::kTarget); !status) return status;
  if (!plans.draft) return Done{};
  auto status = prove_all(*plans.draft, capacity, Forward::kDraft);
  if (!status) return Error{ErrorCode::kInternal, "of the drafts " + status.error().message, ""};
  return status;
}

}  // namespace lockstep::planning
