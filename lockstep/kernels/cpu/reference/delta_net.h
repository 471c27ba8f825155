#pragma once
// The ops of delta_net.h as they are meant to be read: sums in double precision in ascending order. A state
// is rounded to float32 after every row, as it is kept.
#include "lockstep/kernels/delta_net.h"

namespace lockstep::kernels::cpu {

void reference_causal_conv(const CausalConvArgs& args);
void reference_l2_norm(const L2NormArgs& args);
void reference_gated_delta(const GatedDeltaArgs& args);

}  // namespace lockstep::kernels::cpu
