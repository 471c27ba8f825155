#pragma once
// One rank: what its thread owns and the forward that it runs. Private to the executor.
#include <cstdlib>
#include <memory>
#include <vector>

#include "lockstep/collectives/boundary.h"
#include "lockstep/runtime/executor/rank_executor.h"
#include "lockstep/runtime/executor/step_rows.h"

namespace lockstep::runtime {

class Rank {
 public:
  Rank(const RankExecutorParts& parts, int rank, std::unique_ptr<collectives::Communicator> communicator);

  Status load();  // weights and cache; on the rank's own thread
  void run(const StepInput& input, const StepRows& rows, const LogitSink& sink);

 private:
  struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
  };
  void deliver(const StepInput& input, TensorView logits, const LogitSink& sink);
  std::string fault_of(const StepInput& input, int32_t row, std::span<const float> logits) const;

  const RankExecutorParts& parts_;
  const int rank_, replica_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<kernels::Kernels> kernels_;
  Workspace workspace_;
  collectives::Boundary boundary_;
  std::unique_ptr<models::Model> model_;
  std::vector<std::unique_ptr<void, FreeMemory>>
      cache_memory_;  // pages that no sequence has touched cost nothing
  std::vector<TensorView> caches_;
};

}  // namespace lockstep::runtime
