#pragma once
// A plan as a file that says everything a proof of it needs, so that a plan can be checked apart from the
// program that made it, perhaps after somebody has edited it. Reading trusts nothing: sizes are bounded, and
// what a file says is either checked or refused by name.
#include <string>
#include <vector>

#include "lockstep/planning/configuration.h"
#include "lockstep/planning/trace.h"
#include "lockstep/planning/verifier.h"

namespace lockstep::planning {

// What a file says beside its plans: the grid, how stages are declared, limits, layers, sizes, and the flags
// and the machine that it all follows from.
Json configuration_json(const Configuration& configuration, const ModelShape& model, const Machine& machine);
Json to_json(const StepPlan& step_plan);
Result<StepPlan> step_plan_from_json(const Json& json);

// One step of a configuration: `rows` a replica. Decode: every row is a request of its own and its logits are
// wanted; prefill: a replica's rows are one prompt, whose last row's logits are wanted.
enum class Phase : uint8_t { kDecode, kPrefill };
Result<StepPlan> step_of_rows(const Plans& plans, const Capacity& capacity, const std::vector<int>& rows,
                              Phase phase);
// "step_plan" and "trace" of a file.
void add_trace(Json& file, const Plans& plans, const StepPlan& step_plan, const TraceSizes& sizes);

struct FoundInFile {
  std::string plan;  // "decode", "step plan", "trace"
  Violation violation;
};
struct PlanFileReport {
  int num_edges = 0, num_proofs = 0;  // a proof is one plan under one step plan
  std::vector<FoundInFile> found;
};
struct PlanFileLimits {
  int max_ranks = 1024;
  int64_t max_rows = 1 << 16;  // of a step plan, all replicas together
};
// Everything that is wrong with the plans, the step plan and the trace of a file; where nothing is, what it
// says of their bytes and times, of memory and of settings that does not follow from its flags, its machine
// and its plans. An error where it cannot be read as a plan file at all.
Result<PlanFileReport> check_plan_file(const Json& file, const PlanFileLimits& limits = {});

}  // namespace lockstep::planning
