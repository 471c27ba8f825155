// The table of counts is typed: a number of rows is no replica's counts, and the counts of one replica are no
// table.
// refused: (cannot convert|could not convert|no matching function|no known conversion|no viable)
#include "lockstep/planning/step_plan.h"

using namespace lockstep::planning;

#ifdef SHOULD_NOT_COMPILE
StepPlan mistaken(const StepShape& shape, int32_t rows) { return make_step_plan(1, shape, rows); }
#endif
StepPlan meant(const StepShape& shape, int32_t rows) {
  return make_step_plan(1, shape, {{.num_requests = rows, .num_target_rows = rows, .logit_rows = {}}});
}
