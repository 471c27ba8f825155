// A result that may hold an error is not the value.
// refused: (cannot convert|no viable conversion)
#include "lockstep/base/check.h"

lockstep::Result<int> count();

#ifdef SHOULD_NOT_COMPILE
int mistaken() { return count(); }
#endif
int meant() {
  const auto found = count();
  return found.ok() ? *found : 0;
}
