#pragma once
// The floor under the time of a step: the bytes that it must read and the floating-point operations that it
// must do, over what the machine was measured to do. For `lockstep bench`.
#include <optional>

#include "lockstep/runtime/start.h"

namespace lockstep::runtime {

struct StepNeeds {
  double bytes = 0;  // of weights and cached tokens
  double flops = 0;  // of products with weights; attention's own are left out
};
// A step in which `batch` sequences decode, each with so many tokens cached. Experts are read as often as
// rows that choose them at random would have it.
StepNeeds decode_needs(const planning::ModelShape& shape, int batch, int context);
// A whole prompt, of which the last row's logits are wanted.
StepNeeds prompt_needs(const planning::ModelShape& shape, int tokens);

struct MachineRoofs {
  double read_bytes_per_second = 0, flops_per_second = 0;
  int threads = 0;
};
// Measured with as many threads as the configuration computes with; nothing for a device other than the CPU.
std::optional<MachineRoofs> measure_roofs(const EngineConfig& config, const PlannedEngine& planned);
double floor_seconds(const StepNeeds& needs, const MachineRoofs& roofs);

}  // namespace lockstep::runtime
