#pragma once
// A configuration solved, planned and sized against a checkpoint's config, before a weight is read: what a
// start, `lockstep plan` and `lockstep doctor` share, so that none accepts what another refuses. Private to
// runtime.
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/registry.h"
#include "lockstep/runtime/kv_cache/cache_memory.h"
#include "lockstep/runtime/scheduler/limits.h"
#include "lockstep/runtime/start.h"

namespace lockstep::runtime {

struct DescribedEngine {
  PlannedEngine planned;
  std::shared_ptr<const models::ModelDescription> description;
  SchedulerLimits limits;
  CacheBytes cache_bytes;  // of the rank that caches most
  // Why the ranks cannot compute here; then the memory is not known either and limits only what was asked
  // for.
  Status device = Done{};
  std::vector<std::string> notes;  // what a user should know, though nothing is refused
};

DType dtype_of(CacheType type);
// Fills in what a token costs in the cache, and over how many ranks attention can split it.
void add_cache_shape(const models::ModelDescription& description, planning::ModelShape& shape);

Result<DescribedEngine> describe_engine(const EngineConfig& config);
// The same with what models::describe gave for the folder.
Result<DescribedEngine> describe_engine(const EngineConfig& config, models::CheckpointInfo checkpoint);

}  // namespace lockstep::runtime
