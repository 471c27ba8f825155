#pragma once
// A step's input as the head sends it to the other processes. Each makes the step plan anew from the table of
// counts, with the one function that makes step plans, and refuses a step whose plan is another than the
// head's. Bytes are hostile: what leaves the engine's limits is WrongBytes.
#include "lockstep/collectives/hosts/bytes.h"
#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

struct StepBounds {
  planning::StepShape shape;
  int32_t page_size = 1, pages_per_replica = 1;
  int32_t num_slots = 1;  // of running sequences and of snapshots
  int32_t vocab = 1;
};

void write_step(const StepInput& input, collectives::ByteWriter& writer);
// Throws WrongBytes, and Fatal with what differs where the plans do.
StepInput read_step(collectives::ByteReader& reader, const StepBounds& bounds);

}  // namespace lockstep::runtime
