#pragma once
// What every rank does in one step: the plan's steps with the rows and bytes of a given step plan, so that
// anybody can check it with a program of their own. Internal data of a report, not what ranks run from.
#include "lockstep/planning/plan.h"
#include "lockstep/planning/step_plan.h"

namespace lockstep::planning {

// Sizes that turn rows into bytes.
struct TraceSizes {
  int hidden = 1, vocab = 1, top_k = 1;
  int bytes_per_value = 2;
  int latent = 0;  // features of a row between latents and attention
};

struct TracedStep {
  std::string edge;  // "attention.3 -> dense.3"
  uint32_t id = 0;
  StepKind op = StepKind::kNorm;
  Value value = Value::kHidden;
  std::vector<int> group;  // ascending; the rank alone where the step is local
  int64_t rows_in = 0, rows_out = 0;
  // One a member of the group, the same on all members. Gathers: the rows that each brings. Scatters, columns
  // to rows and the fused scatter: the rows that each keeps. Reductions: the rows that each holds. Dispatch
  // and combine: the rows that each sends from.
  std::vector<int64_t> counts;
  int64_t capacity = -1;  // of a dispatch or combine: slots that a pair of ranks has; else -1
  int64_t bytes = 0;      // out of this rank
  bool operator==(const TracedStep&) const = default;
};

std::vector<std::vector<TracedStep>> trace_of(const Plan& plan, const RankGrid& grid,
                                              const StepPlan& step_plan, const TraceSizes& sizes);  // [ranks]
Json to_json(const std::vector<std::vector<TracedStep>>& trace);

}  // namespace lockstep::planning
