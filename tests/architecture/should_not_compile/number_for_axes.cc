// The index of an axis, or a width, is not a set of axes.
// refused: (no matching function|cannot convert|no viable|could not convert)
#include "lockstep/planning/rank_grid.h"

using lockstep::planning::AxisSet;
using lockstep::planning::RankGrid;

#ifdef SHOULD_NOT_COMPILE
int mistaken(const RankGrid& grid) { return grid.size(2); }
#endif
int meant(const RankGrid& grid) { return grid.size(AxisSet::of(2)); }
