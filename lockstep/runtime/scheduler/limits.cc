#include "lockstep/runtime/scheduler/limits.h"

#include <algorithm>

namespace lockstep::runtime {

int32_t SchedulerLimits::max_running() const {
  const int64_t slots = int64_t{shape.num_replicas} * shape.capacity.max_requests;
  return static_cast<int32_t>(std::min<int64_t>(max_running_requests, slots));
}

int32_t SchedulerLimits::max_sequence_tokens() const {
  return static_cast<int32_t>(std::min<int64_t>(context_length, int64_t{pages_per_replica} * page_size));
}

namespace {

struct Minimum {
  const char* flag;
  int64_t value, at_least;
  const char* because;
};

}  // namespace

Status check_limits(const SchedulerLimits& limits) {
  const planning::StepShape& shape = limits.shape;
  const planning::Capacity& capacity = shape.capacity;
  const Minimum minimums[] = {
      {"--dp-size", shape.num_replicas, 1, "there is at least one attention replica"},
      {"--tp-size", shape.ranks_per_replica, 1, "a replica has at least one rank"},
      {"--max-running-requests", limits.max_running_requests, 1, "nothing could run"},
      {"--max-running-requests", capacity.max_requests, 1, "no replica could run anything"},
      {"--max-queued-requests", limits.max_queued_requests, 0, "it is a count"},
      {"--chunked-prefill-size", limits.chunked_prefill_size, 1, "no prompt would ever advance"},
      {"--page-size", limits.page_size, 1, "a page holds at least one token"},
      {"--mem-fraction-static", limits.pages_per_replica, 1, "the cache has no page"},
      {"--context-length", limits.context_length, 1, "no prompt would fit"},
      {"--max-mamba-cache-size", limits.num_snapshots, 0, "running requests need a state each"},
  };
  for (const Minimum& m : minimums) {
    if (m.value < m.at_least)
      return invalid_argument(m.flag, "{} gives {}, which must be at least {}: {}", m.flag, m.value,
                              m.at_least, m.because);
  }
  if (capacity.max_rows % shape.row_quantum() != 0)
    return invalid_argument("--chunked-prefill-size",
                            "a step of {} rows is no multiple of the row quantum {}", capacity.max_rows,
                            shape.row_quantum());
  if (capacity.max_rows < planning::round_up(capacity.max_requests, shape.row_quantum()))
    return invalid_argument(
        "--max-running-requests",
        "{} requests of a replica need {} rows in a step, rounded up to the quantum; it has {}",
        capacity.max_requests, planning::round_up(capacity.max_requests, shape.row_quantum()),
        capacity.max_rows);
  if (capacity.max_logit_rows < capacity.max_requests)
    return invalid_argument("--max-running-requests",
                            "{} requests of a replica want as many rows of logits in a step; it has {}",
                            capacity.max_requests, capacity.max_logit_rows);
  return Done{};
}

}  // namespace lockstep::runtime
