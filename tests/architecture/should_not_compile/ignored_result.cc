// Somebody must look at whether it worked.
// refused: (nodiscard|ignoring return)
#include "lockstep/base/check.h"

lockstep::Status save();

#ifdef SHOULD_NOT_COMPILE
void mistaken() { save(); }
#endif
bool meant() { return save().ok(); }
