// Which plan a step runs and whose rows it has are two questions.
// refused: (cannot convert|could not convert|no matching function|no known conversion)
#include "lockstep/planning/step_plan.h"

using namespace lockstep::planning;

#ifdef SHOULD_NOT_COMPILE
StepPlan mistaken(const StepShape& shape, std::vector<ReplicaCounts> counts) {
  return make_step_plan(1, shape, std::move(counts), Regime::kDecode);
}
#endif
StepPlan meant(const StepShape& shape, std::vector<ReplicaCounts> counts) {
  return make_step_plan(1, shape, std::move(counts), Forward::kDraft);
}
