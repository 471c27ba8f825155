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
  // How they were found, where there are several.
  collectives::HostPlace place;
  collectives::Passport passport;
};

// Nothing of the weights is read before the configuration is solved and proven, and all processes have
// joined.
Result<JoinedEngine> join_engine(const EngineConfig& config, const Progress& progress);
// After a failure, where there are several processes: those that are left and who comes in place of the
// others. Waits as long as the first time. The links before must have been let go.
Status join_again(JoinedEngine& joined, const Progress& progress);
// For the ranks of this process, over the mapped weights.
Result<RankExecutorParts> rank_parts(const EngineConfig& config, const JoinedEngine& joined,
                                     const Progress& progress);

}  // namespace lockstep::runtime
