// Which axes and what is done along them are different things.
// refused: (no matching function|cannot convert|no viable|could not convert)
#include "lockstep/planning/layout.h"

using lockstep::planning::AxisSet;
using lockstep::planning::Layout;
using lockstep::planning::Placement;

#ifdef SHOULD_NOT_COMPILE
Layout mistaken() { return Layout().with(Placement::kShard, AxisSet::of(0)); }
#endif
Layout meant() { return Layout().with(AxisSet::of(0), Placement::kShard); }
