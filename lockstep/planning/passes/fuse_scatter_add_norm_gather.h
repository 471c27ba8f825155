#pragma once
// Pass: a reduce-scatter, add, norm and all-gather of hidden over the same axes become one fused step, where
// the machine has it and it is cheaper. The residual stays in slices. It rewrites steps that are there.
#include "lockstep/planning/planner.h"

namespace lockstep::planning {

Plan fuse_scatter_add_norm_gather(const Plan& plan, const PlanningContext& context);

}  // namespace lockstep::planning
