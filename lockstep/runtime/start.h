#pragma once
// From flags and a checkpoint's folder to a running engine. For the cli; serving sees engine.h only.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/kernels/device.h"
#include "lockstep/planning/configuration.h"
#include "lockstep/runtime/engine.h"
#include "lockstep/runtime/engine_loop.h"
#include "lockstep/runtime/fault_policy.h"
#include "lockstep/runtime/hosts/launch.h"
#include "lockstep/runtime/kv_cache/replica_cache.h"
#include "lockstep/tensors/weight_encode.h"

namespace lockstep::runtime {

enum class CacheType : uint8_t { kF32, kBF16 };
using kernels::Device;
using kernels::kMostCpuThreads;
using kernels::ProductInputs;
using kernels::Steps;

struct EngineConfig {
  std::string model_directory;
  std::string served_name;  // empty: the folder's name
  planning::ParallelFlags parallel;
  std::optional<int> context_length;        // --context-length: at most what the model was made for
  std::optional<int64_t> max_total_tokens;  // --max-total-tokens: cached tokens of one replica
  double mem_fraction_static =
      0.4;             // --mem-fraction-static: of memory (of a GPU's free memory), for all caches together
  int page_size = 16;  // --page-size, tokens
  Overlap overlap = Overlap::kOn;               // --disable-overlap-schedule: kOff
  std::optional<double> queue_timeout_seconds;  // --queue-timeout: of a request's wait for its start
  int max_queued_requests = 1024;               // --max-queued-requests
  CacheType cache_type = CacheType::kF32;       // --kv-cache-dtype
  PrefixCache prefix_cache = PrefixCache::kOn;  // --disable-radix-cache: kOff
  // --max-mamba-cache-size: recurrent states of a replica, those of running requests included
  std::optional<int> max_mamba_cache_size;
  std::optional<QuantFormat> quantization;  // --quantization: of plain weights, while they are read
  Device device = Device::kCpu;             // --device
  std::optional<int> threads;   // --threads, of each rank on the CPU; none: its share of the cores
  std::string instruction_set;  // --instruction-set, of the CPU; empty: the widest
  ProductInputs product_inputs = ProductInputs::kRounded;  // --product-inputs, of a GPU
  Steps steps = Steps::kRecorded;                          // --disable-cuda-graph: kLaunched
  enum class Weights : uint8_t { kCheckpoint, kRandom } weights = Weights::kCheckpoint;  // --dummy-weights
  int num_valid_tokens = 0;      // ids that the tokenizer knows; 0: all
  double deadline_seconds = 60;  // of one wait between ranks
  FaultPolicy faults;            // --step-timeout, --max-engine-restarts, --max-request-failures
  std::string trace_file;        // --trace; empty: steps are not traced
  int trace_steps = 1000;        // --trace-steps: of them the first
  std::string machine_file;      // --machine: what `lockstep doctor --measure` wrote; empty: what is assumed
  HostsConfig hosts;             // --hosts and what goes with it
};

// One line about what is being done, for people; may be empty.
using Progress = std::function<void(std::string_view)>;

// What a configuration solves to, without a weight read: for `lockstep plan` and `lockstep verify`.
struct PlannedEngine {
  ModelInfo model;
  planning::ModelShape shape;
  planning::Machine machine;
  planning::Configuration configuration;
  planning::Plans plans;
};
Result<PlannedEngine> plan_engine(const EngineConfig& config);
// The sizes of a model from its config.json alone, weights in the format that it names.
struct ModelSizes {
  planning::ModelShape shape;
  double state_bytes_per_sequence = 0;  // beside what is cached of every token
  int context_length = 0;               // that the model was made for
};
Result<ModelSizes> sizes_of_config(const std::string& model_directory);
std::string plan_text(const PlannedEngine& planned);
Json plan_json(const PlannedEngine& planned);

// Plans, proves, loads, warms up. Nothing of the weights is read before the configuration is solved and
// proven.
Result<std::unique_ptr<Engine>> start_engine(const EngineConfig& config, const Progress& progress = {});

}  // namespace lockstep::runtime
