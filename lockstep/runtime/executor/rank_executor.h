#pragma once
// The executor: one thread a rank of this process, each with its slices of the weights, its cache and its
// boundary. start.cc makes it; the engine loop sees only the Executor interface, and hosts/ LoadedRanks.
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/collectives/hosts/links.h"
#include "lockstep/kernels/device.h"
#include "lockstep/models/model.h"
#include "lockstep/planning/configuration.h"
#include "lockstep/runtime/step.h"
#include "lockstep/tensors/safetensors.h"

namespace lockstep::runtime {

enum class SpanRecording : uint8_t { kOff, kOn };  // of what every rank does when, for traces

struct RankExecutorOptions {
  int vocab = 0, hidden = 0;
  int page_size = 16;
  int64_t pages_per_replica = 1;
  int64_t num_snapshots = 0;                // slots beside those of running sequences
  DType cache_dtype = DType::kF32;          // or kBF16
  std::optional<QuantFormat> quantization;  // of plain weights, while they are read
  kernels::DeviceChoice device;
  std::chrono::milliseconds deadline{60000};  // of one wait between ranks
  SpanRecording spans = SpanRecording::kOff;
};

// Everything that outlives a step. The executor keeps what it is given alive.
struct RankExecutorParts {
  std::shared_ptr<const planning::Plans> plans;
  planning::StageOptions stages;
  planning::StepShape shape;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const models::ModelDescription> description;
  RankExecutorOptions options;
  std::shared_ptr<collectives::Links> links = nullptr;  // to other processes' ranks; null: all are here
};

// The ranks of this process.
class LoadedRanks : public Executor {
 public:
  virtual int busy() const = 0;  // how many have not come back from the step; from any thread
};

// Loads the slices of every rank of this process, in parallel. The error lists what does not fit.
Result<std::unique_ptr<LoadedRanks>> make_rank_executor(RankExecutorParts parts);

// Which slices of the weights a rank loads.
models::Shards shards_of(const planning::RankGrid& grid, const planning::StageOptions& stages, int rank);

// A step of synthetic rows for warm-up, the same in every replica, through the same make_step_plan() as any
// other. Sequences share pages where there are too few.
struct WarmUpSequence {
  RowKind kind = RowKind::kPrompt;
  int32_t rows = 1, context = 1;
};
struct WarmUpPages {
  int32_t page_size = 16, per_replica = 1;
};
StepInput warm_up_step(const planning::StepShape& shape, const std::vector<WarmUpSequence>& sequences,
                       const WarmUpPages& pages, planning::Forward forward = planning::Forward::kTarget);

}  // namespace lockstep::runtime
