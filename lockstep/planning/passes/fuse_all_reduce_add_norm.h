#pragma once
// Pass: an all-reduce that is followed by add and norm becomes one fused step, where the machine has it and
// it is cheaper. It rewrites steps that are there; where no all-reduce exists there is nothing to fuse.
#include "lockstep/planning/planner.h"

namespace lockstep::planning {

Plan fuse_all_reduce_add_norm(const Plan& plan, const PlanningContext& context);

}  // namespace lockstep::planning
