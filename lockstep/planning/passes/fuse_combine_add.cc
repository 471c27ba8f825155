#include "lockstep/planning/passes/fuse_combine_add.h"

namespace lockstep::planning {

Plan fuse_combine_add(const Plan& plan, const PlanningContext& context) {
  if (context.machine.fused_combine_add == Machine::FusedCombineAdd::kNone) return plan;
  const auto cost = [&](const Step& step) {
    return estimate(step, context.grid, context.machine, context.load).us;
  };
  Plan fused = plan;
  for (Edge& edge : fused.edges) {
    auto& steps = edge.steps;
    // A combine is always first, and an add takes whole rows: so nothing is owed where the two are
    // neighbours.
    if (steps.size() < 2 || steps[0].kind != StepKind::kCombine || steps[1].kind != StepKind::kAdd) continue;
    Step one = steps[0];
    one.kind = StepKind::kFusedCombineAdd;
    if (cost(one) > cost(steps[0]) + cost(steps[1])) continue;
    steps[0] = one;
    steps.erase(steps.begin() + 1);
  }
  return fused;
}

}  // namespace lockstep::planning
