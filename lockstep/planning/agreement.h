#pragma once
// Do ranks that made their plans apart have the same ones? Between threads of one process a plan is one
// value; between hosts each makes its own, and what must agree is checked here, in words that say what
// differs.
#include <span>
#include <vector>

#include "lockstep/planning/verifier.h"

namespace lockstep::planning {

// One plan a rank. Every member of a group must meet the others in the same steps in the same order; where
// one does not, the others wait for it: the message names the step, the group and the rank that is missing.
std::vector<Violation> check_agreement(const RankGrid& grid, std::span<const Plan> of_ranks);

// One step plan a rank: names the first field in which two differ.
std::vector<Violation> check_agreement(std::span<const StepPlan> of_ranks);

}  // namespace lockstep::planning
