#include "lockstep/planning/passes/fuse_scatter_add_norm_gather.h"

#include <optional>
#include <vector>

namespace lockstep::planning {
namespace {

// The steps from `at` on, if they are the ones that fuse; moves of the residual in between may come first.
struct Found {
  std::vector<Step> before;  // moves of the residual
  Step fused;
  size_t length = 0;
};

bool is_move_of_residual(const Step& step) {
  return step.value == Value::kResidual && step.kind != StepKind::kAdd && step.kind != StepKind::kSeed;
}

std::optional<Found> find_at(const std::vector<Step>& steps, size_t at) {
  const Step& scatter = steps[at];
  if (scatter.kind != StepKind::kReduceScatter || scatter.value != Value::kHidden) return std::nullopt;
  Found found;
  size_t next = at + 1;
  while (next < steps.size() && is_move_of_residual(steps[next])) found.before.push_back(steps[next++]);
  if (next + 2 >= steps.size()) return std::nullopt;
  const Step &add = steps[next], &norm = steps[next + 1], &gather = steps[next + 2];
  const bool fits = add.kind == StepKind::kAdd && add.before == scatter.after &&
                    norm.kind == StepKind::kNorm && norm.before == add.after &&
                    gather.kind == StepKind::kAllGather && gather.value == Value::kHidden &&
                    gather.over == scatter.over && gather.before == norm.after;
  if (!fits) return std::nullopt;
  found.fused = scatter;
  found.fused.kind = StepKind::kFusedScatterAddNormGather;
  found.fused.after = gather.after;
  found.length = next + 3 - at;
  return found;
}

}  // namespace

Plan fuse_scatter_add_norm_gather(const Plan& plan, const PlanningContext& context) {
  if (context.machine.fused_scatter_norm_gather == Machine::FusedScatterNormGather::kNone) return plan;
  const auto cost = [&](const Step& step) {
    return estimate(step, context.grid, context.machine, context.load).us;
  };
  Plan fused = plan;
  for (Edge& edge : fused.edges)
    for (size_t at = 0; at < edge.steps.size(); ++at) {
      auto found = find_at(edge.steps, at);
      if (!found) continue;
      double parts = 0, whole = cost(found->fused);
      for (size_t i = at; i < at + found->length; ++i) parts += cost(edge.steps[i]);
      for (const Step& step : found->before) whole += cost(step);
      if (whole > parts) continue;
      found->before.push_back(found->fused);
      const auto first = edge.steps.begin() + static_cast<std::ptrdiff_t>(at);
      edge.steps.insert(edge.steps.erase(first, first + static_cast<std::ptrdiff_t>(found->length)),
                        found->before.begin(), found->before.end());
    }
  return fused;
}

}  // namespace lockstep::planning
