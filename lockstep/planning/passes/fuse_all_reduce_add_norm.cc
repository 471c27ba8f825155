#include "lockstep/planning/passes/fuse_all_reduce_add_norm.h"

namespace lockstep::planning {
namespace {

bool can_fuse(const Step& reduce, const Step& add, const Step& norm) {
  return reduce.kind == StepKind::kAllReduce && reduce.value == Value::kHidden &&
         add.kind == StepKind::kAdd && norm.kind == StepKind::kNorm && reduce.after == add.before &&
         add.after == norm.before;
}

}  // namespace

Plan fuse_all_reduce_add_norm(const Plan& plan, const PlanningContext& context) {
  if (context.machine.fused_all_reduce_add_norm == Machine::FusedAllReduceAddNorm::kNone) return plan;
  const auto cost = [&](const Step& step) {
    return estimate(step, context.grid, context.machine, context.load).us;
  };
  Plan fused = plan;
  for (Edge& edge : fused.edges) {
    auto& steps = edge.steps;
    for (size_t at = 0; at + 2 < steps.size(); ++at) {
      if (!can_fuse(steps[at], steps[at + 1], steps[at + 2])) continue;
      Step one = steps[at];
      one.kind = StepKind::kFusedAllReduceAddNorm;
      if (cost(one) > cost(steps[at]) + cost(steps[at + 1]) + cost(steps[at + 2])) continue;
      steps[at] = one;
      const auto rest = steps.begin() + static_cast<std::ptrdiff_t>(at);
      steps.erase(rest + 1, rest + 3);
    }
  }
  return fused;
}

}  // namespace lockstep::planning
