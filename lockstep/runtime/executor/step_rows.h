#pragma once
// A StepInput as the ranks read it: flat arrays over all rows in the order of home ranks, and each replica's
// sequences.
#include <vector>

#include "lockstep/kernels/kernels.h"
#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

struct ReplicaSequences {
  // Views of the input's page tables. A row that decodes has an entry of its own, also beside the drafts that
  // follow it: it is computed as it would be without them.
  std::vector<kernels::PagedSequence> prompts, decodes;
};

struct StepRows {
  std::vector<int32_t> token_ids, positions;  // [all padded rows]; 0 for padding
  std::vector<ReplicaSequences> replicas;
};

// The input must outlive the result. Counts that are not those of the plan are a bug of the caller.
StepRows flatten(const StepInput& input);

}  // namespace lockstep::runtime
