#pragma once
// Runs a plan on symbolic rows and exact integers and compares with one rank that holds everything. Proven
// for the given table of counts: each row arrives exactly once where it is needed, each owed sum is paid
// exactly once over exactly its group, every (row, expert) pair is computed once and weighted once, padding
// routes nowhere, idle replicas work, and a replica's result is the same whatever the others hold. It trusts
// nothing that the planner wrote: it executes the steps.
#include <span>
#include <string>
#include <vector>

#include "lockstep/planning/plan.h"
#include "lockstep/planning/step_plan.h"

namespace lockstep::planning {

struct Violation {
  std::string edge;   // "attention.3 -> dense.3"
  uint32_t step = 0;  // id of the step, or of the edge's last one
  std::string says;   // what was found and what was expected, with both values
};

struct VerifierOptions {
  uint64_t seed = 1;
  int num_experts = 4, top_k = 2;
};

// Stops at the first edge with violations. An empty result is the proof for this step plan.
std::vector<Violation> verify(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid,
                              const StepPlan& step_plan, const VerifierOptions& options = {});

// The step plans that together exercise a configuration: one row somewhere, idle replicas, uneven replicas,
// rows that the quantum does not divide, no row at all, full capacity.
std::vector<StepPlan> probing_step_plans(const StepShape& shape);

}  // namespace lockstep::planning
