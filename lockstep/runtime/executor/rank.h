#pragma once
// One rank: what its thread owns and the forward that it runs. Private to the executor.
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/collectives/boundary.h"
#include "lockstep/collectives/in_process/world.h"
#include "lockstep/runtime/executor/job_threads.h"
#include "lockstep/runtime/executor/rank_executor.h"
#include "lockstep/runtime/executor/step_rows.h"
#include "lockstep/runtime/kv_cache/cache_memory.h"

namespace lockstep::runtime {

class Rank {
 public:
  Rank(const RankExecutorParts& parts, int rank, collectives::InProcessWorld& world);

  // Weights and cache, on the rank's own thread. bytes_read counts up meanwhile.
  Status load(std::atomic<uint64_t>& bytes_read);
  void run(const StepInput& input, const StepRows& rows, const LogitSink& sink);
  // What the device was given has run. Its faults are in the log: at the end there is nobody to tell.
  void wait_idle() const;

  // From any thread.
  std::string doing() const { return crossing_.load()->doing(); }
  // While no step runs.
  double sample_seconds() const { return sample_seconds_; }
  std::vector<RankSpan> take_spans();

 private:
  std::vector<int32_t> kept_rows_of(const StepInput& input) const;
  bool repeats(const StepInput& input, const ReplicaSequences& sequences) const;
  void copy_slots(const std::vector<SequenceRows>& sequences, int32_t SequenceRows::* from,
                  int32_t SequenceRows::* to);
  static uint64_t shape_of(const planning::StepPlan& plan, LogitUse use);
  // The wanted rows whose home this rank is, in row order, and what for: the order of the logits.
  struct OwnRow {
    int32_t row = 0;
    LogitUse use = LogitUse::kAny;
  };
  std::vector<OwnRow> own_rows(const StepInput& input) const;
  TensorView on_host(const TensorView& logits);
  void deliver(const StepInput& input, const std::vector<OwnRow>& rows, TensorView logits,
               std::span<const int32_t> largest, const LogitSink& sink);
  static bool are_finite(std::span<const float> logits);
  std::string fault_of(const StepInput& input, int32_t row) const;
  std::vector<collectives::Mark>* marks_of_steps() {
    return parts_.options.spans == SpanRecording::kOn ? &marks_ : nullptr;
  }
  void keep_spans(std::chrono::steady_clock::time_point sampled, std::chrono::steady_clock::time_point end);

  const RankExecutorParts& parts_;
  const int rank_, replica_;
  const std::unique_ptr<kernels::Kernels> kernels_;
  const std::unique_ptr<collectives::Communicator> communicator_;
  Workspace workspace_;
  std::vector<collectives::Mark> marks_;  // of the step that runs; kept only when steps are traced
  collectives::Boundary boundary_;
  std::unique_ptr<collectives::Boundary> draft_boundary_;           // where something drafts
  std::atomic<const collectives::Boundary*> crossing_{&boundary_};  // of the two, that of the step that runs
  std::unique_ptr<models::Model> model_;
  CacheMemory cache_;
  Buffer kept_;  // rows from one forward to the next, for drafts
  TensorView kept_rows_;
  std::vector<int32_t> kept_places_;  // of the rows of the forward before among them; empty: in order
  Buffer host_logits_, host_ids_;
  Buffer largest_values_, largest_ids_;  // [rows] of the logits, where a device computes
  std::vector<RankSpan> spans_;          // since they were taken last
  double sample_seconds_ = 0;            // of the last step
  std::unique_ptr<JobThreads> helpers_;  // none where ranks compute on the host; last: end before the rest
};

}  // namespace lockstep::runtime
