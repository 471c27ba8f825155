// A stage computes, a step moves rows: their kinds do not mix.
// refused: (cannot convert|incompatible type|no match)
#include "lockstep/planning/plan.h"

using lockstep::planning::StageKind;
using lockstep::planning::Step;
using lockstep::planning::StepKind;

#ifdef SHOULD_NOT_COMPILE
void mistaken(Step& step) { step.kind = StageKind::kDense; }
#endif
void meant(Step& step) { step.kind = StepKind::kNorm; }
