#pragma once
// Pass: gathers of one value that follow each other become one over both groups. The search already takes
// the wider gather where that is cheaper, so this rewrites what other passes, or people, left behind.
#include "lockstep/planning/planner.h"

namespace lockstep::planning {

Plan merge_gathers(const Plan& plan, const PlanningContext& context);

}  // namespace lockstep::planning
