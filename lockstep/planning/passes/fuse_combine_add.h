#pragma once
// Pass: a combine whose output owes no sum and is added to the residual at once becomes one fused step, where
// the machine has it and it is cheaper. It rewrites steps that are there.
#include "lockstep/planning/planner.h"

namespace lockstep::planning {

Plan fuse_combine_add(const Plan& plan, const PlanningContext& context);

}  // namespace lockstep::planning
