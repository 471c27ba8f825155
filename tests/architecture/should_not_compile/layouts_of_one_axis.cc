// A layout says something of every axis: one placement is not a layout.
// refused: (no match|invalid operands|cannot convert)
#include "lockstep/planning/layout.h"

using lockstep::planning::Layout;
using lockstep::planning::Placement;

#ifdef SHOULD_NOT_COMPILE
bool mistaken(const Layout& layout) { return layout == Placement::kShard; }
#endif
bool meant(const Layout& layout) { return layout.at(0) == Placement::kShard; }
