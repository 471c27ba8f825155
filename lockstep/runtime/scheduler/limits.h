#pragma once
// What admission allows. Everything that the executor sizes follows from these numbers, and the scheduler
// cannot form a step beyond them.
#include <cstdint>

#include "lockstep/base/check.h"
#include "lockstep/planning/step_plan.h"
#include "lockstep/runtime/kv_cache/replica_cache.h"

namespace lockstep::runtime {

struct SchedulerLimits {
  planning::StepShape shape;           // its capacity is per replica and step
  int32_t max_running_requests = 1;    // whole engine
  int32_t max_queued_requests = 1024;  // whole engine: accepted beyond max_running_requests
  int32_t chunked_prefill_size = 512;  // prompt rows of one replica and step
  int32_t page_size = 16;              // tokens
  int32_t pages_per_replica = 1;
  int32_t context_length = 4096;  // tokens of prompt and output together
  PrefixCache prefix_cache = PrefixCache::kOff;
  SequenceState sequence_state = SequenceState::kNone;
  int32_t num_snapshots = 0;  // of a replica: places for copies of what is kept once a sequence
  // A sequence makes no copy before so many tokens have come since its last; a quarter at a prompt's end.
  int32_t tokens_between_snapshots = 256;

  // Running at once, over all replicas.
  int32_t max_running() const;
  // The tokens, prompt and output, that one sequence can grow to: by the context, or by the whole cache of a
  // replica.
  int32_t max_sequence_tokens() const;
};

// Numbers that cannot work together; Error::field is the flag to change.
Status check_limits(const SchedulerLimits& limits);

}  // namespace lockstep::runtime
