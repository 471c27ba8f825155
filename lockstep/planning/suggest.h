#pragma once
// Which configurations suit a model on a machine, from sizes alone: every configuration that solves is priced
// by the cost model and ranked. A prediction to start measuring from, not a promise.
#include <string>
#include <vector>

#include "lockstep/planning/configuration.h"
#include "lockstep/planning/memory.h"

namespace lockstep::planning {

enum class Objective : uint8_t { kThroughput, kLatency };

struct SuggestRequest {
  Machine machine;
  int num_ranks = 1;
  Objective objective = Objective::kThroughput;
  int context = 4096;                  // tokens of a request that are cached
  double state_bytes_per_request = 0;  // kept beside the cache, split over attention-TP
  double memory_share = 0.9;           // of a rank's memory that weights, cache and rows may take
  int max_rows_per_rank = 256;         // decode rows, however much cache there is room for
};

struct Suggestion {
  ParallelFlags flags;
  std::string launch;  // the flags as a command line
  int rows_per_replica = 0, num_replicas = 1;
  double step_us = 0;            // of a decode step
  double tokens_per_second = 0;  // of all replicas
  double tokens_per_second_of_request = 0;
  double weight_gb = 0, cache_gb = 0, total_gb = 0;  // of one rank
};

// The best first, at most `most`; an error that says what would fit where nothing does.
Result<std::vector<Suggestion>> suggest(const ModelShape& model, const SuggestRequest& request, size_t most);

}  // namespace lockstep::planning
