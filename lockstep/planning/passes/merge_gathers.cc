#include "lockstep/planning/passes/merge_gathers.h"

namespace lockstep::planning {

Plan merge_gathers(const Plan& plan, const PlanningContext& context) {
  const auto cost = [&](const Step& step) {
    return estimate(step, context.grid, context.machine, context.load).us;
  };
  Plan merged = plan;
  for (Edge& edge : merged.edges) {
    auto& steps = edge.steps;
    for (size_t at = 0; at + 1 < steps.size();) {
      const Step &first = steps[at], &second = steps[at + 1];
      Step one = first;
      one.over = first.over | second.over;
      one.after = second.after;
      const bool fits = first.kind == StepKind::kAllGather && second.kind == StepKind::kAllGather &&
                        first.value == second.value && first.after == second.before &&
                        cost(one) <= cost(first) + cost(second);
      if (!fits) {
        ++at;
        continue;
      }
      steps[at] = one;
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  }
  return merged;
}

}  // namespace lockstep::planning
