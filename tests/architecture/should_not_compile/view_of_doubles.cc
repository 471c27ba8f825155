// No dtype stands for double: a view of one would be read as something else.
// refused: no matching function
#include "lockstep/tensors/tensor.h"

#ifdef SHOULD_NOT_COMPILE
lockstep::TensorView mistaken(double* data) { return lockstep::view_of(data, {2, 3}); }
#endif
lockstep::TensorView meant(float* data) { return lockstep::view_of(data, {2, 3}); }
