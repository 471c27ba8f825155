#pragma once
// The first half of a start, which the head of an engine and its other processes have in common: describe,
// prove, find each other, load. Private to runtime.
#include <memory>

#include "lockstep/runtime/described_engine.h"
#include "lockstep/runtime/executor/rank_executor.h"

namespace lockstep::runtime {

struct JoinedEngine {
  DescribedEngine described;  // its cache is what every process can afford
  std::shared_ptr<const planning::Plans> plans;
  std::shared_ptr<collectives::Links> links;  // null where there is one process
};

// Nothing of the weights is read before the configuration is solved and proven, and all processes have
// joined.
Result<JoinedEngine> join_engine(const EngineConfig& config, const Progress& progress);
// For the ranks of this process, over the mapped weights.
Result<RankExecutorParts> rank_parts(const EngineConfig& config, const JoinedEngine& joined,
                                     const Progress& progress);

}  // namespace lockstep::runtime
