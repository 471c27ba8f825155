#pragma once
// What a plan file says beside its plans, read from a stranger: sizes are bounded, and what is wrong is
// refused by name. Internal to planning: only plan_file.cc includes it.
#include <optional>
#include <vector>

#include "lockstep/planning/plan_file.h"

namespace lockstep::planning {

struct DescribedInFile {
  RankGrid grid;
  StageOptions stages;
  Capacity capacity;
  ModelShape model;
  std::vector<Stage> chain;
  std::optional<std::vector<Stage>> draft;  // its chain, where the configuration drafts
  TraceSizes sizes;
  // What all of the above follows from, where the file says it.
  std::optional<ParallelFlags> flags;
  std::optional<Machine> machine;
};
Result<DescribedInFile> read_configuration(const Json& file, const PlanFileLimits& limits);

}  // namespace lockstep::planning
