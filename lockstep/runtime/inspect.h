#pragma once
// What a checkpoint's folder is, what it needs and what stands in its way, without running it: for `lockstep
// doctor`. Nothing of the weights is read but the headers of their files. A folder that holds config.json
// alone is looked at as far as that goes.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/machine_facts.h"
#include "lockstep/runtime/start.h"

namespace lockstep::runtime {

struct WeightFiles {
  int64_t num_tensors = 0, num_elements = 0;
  uint64_t bytes = 0;                             // of all files' data
  std::map<std::string, uint64_t> bytes_by_type;  // "bf16": …
};

struct ModelFacts {
  std::string family;
  planning::ModelShape shape;
  int context_length = 0;
  double total_parameters = 0, active_parameters = 0;  // norms left out
  std::vector<int32_t> eos_token_ids;
};

// Under the flags that were given, or their defaults.
struct Needs {
  int num_ranks = 1, num_replicas = 1;
  double weight_bytes_per_rank = 0;  // that a rank reads; ranks of one process share the mapped files
  // Of the rank that caches most: for a token, and once for a sequence (a recurrent state).
  int64_t cache_bytes_per_token = 0, cache_bytes_per_sequence = 0;
  int64_t cached_tokens = 0;     // of one replica
  int max_running_requests = 0;  // of the whole engine
  double cache_bytes = 0;        // of all ranks, when the cache is full
};

struct Inspection {
  std::string architecture;            // as config.json names it; may be empty
  std::optional<ModelFacts> model;     // none: the config is not understood
  std::optional<WeightFiles> weights;  // none: no weights are there, or their files are broken
  std::optional<Needs> needs;          // none: it would not start
  std::vector<std::string> notes;      // worth knowing
  std::vector<std::string> faults;     // every one that would stop it
};

Inspection inspect(const EngineConfig& config, const MachineFacts& machine);

}  // namespace lockstep::runtime
