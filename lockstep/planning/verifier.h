#pragma once
// Runs a plan on symbolic rows and exact integers and compares with one rank that holds everything. Proven
// for the given table of counts: each row arrives exactly once where it is needed, each owed sum is paid
// exactly once over exactly its group, every (row, expert) pair is computed once and weighted once, padding
// routes nowhere, idle replicas work, and a replica's result is the same whatever the others hold. It trusts
// nothing that the planner wrote: it executes the steps, and then compares what came out with what was
// claimed.
#include <span>
#include <string>
#include <vector>

#include "lockstep/planning/plan.h"
#include "lockstep/planning/step_plan.h"

namespace lockstep::planning {

struct Violation {
  std::string edge;             // "attention.3 -> dense.3"
  uint32_t step = 0;            // id of the step, or of the edge's last one
  std::string says;             // what was found and what was expected, with both values
  std::string op = {};          // of the step, or of the edge's last collective; empty: none
  std::string over = {};        // its axes
  std::vector<int> ranks = {};  // the group in which it was found; empty: it concerns no rank
};
// "attention.3 -> dense.3, step 7 (all_reduce over tp, ranks 0 1): …"
std::string to_text(const Violation& violation);
Json to_json(const Violation& violation);

struct VerifierOptions {
  uint64_t seed = 1;
  int num_experts = 0;  // 0: three for every two owners, so that they do not divide
  int top_k = 2;
  // kIgnored: only what the steps do counts, not the layouts and the order that the plan claims beside them.
  enum class Claims : uint8_t { kChecked, kIgnored } claims = Claims::kChecked;
  // What the backend that will run the plan asks for.
  enum class Rows : uint8_t { kAnyPerRank, kEqualPerRank } rows = Rows::kAnyPerRank;
  enum class ZeroRows : uint8_t { kAllowed, kRefused } zero_rows = ZeroRows::kAllowed;
  int64_t slots_of_pair = 0;  // rows that one rank can send another in a dispatch; 0: what the step plan says
};

// Stops at the first edge with violations. An empty result is the proof for this step plan.
std::vector<Violation> verify(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid,
                              const StepPlan& step_plan, const VerifierOptions& options = {});

// Does the table stay within what admission allows?
std::vector<Violation> check_capacity(const StepPlan& step_plan, const StepShape& shape);

// The part of verify() that needs no rows: the edges join the chain's stages, every stage is run by a
// signature that it declares, steps are numbered upwards (their numbers are how ranks find each other).
std::vector<Violation> check_structure(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid);

// A plan with its chain, without the layers that repeat others; proven exactly when the whole plan is.
//
// An edge maps what a stage gave to what the next one needs. What it does depends on four things only: the
// signatures of both stages, the layout of the residual when it is entered, and its steps but for their
// numbers. (The layer's number picks another mixing function, which the steps do not look at.) Where an edge
// agrees with a kept one in all four, the kept one's proof is its proof: right rows in, right rows out. And
// where a stretch of edges ends in the state in which it began, what follows is entered in the same state
// with or without it. So stretches are left out that end where they began and hold no edge that is not kept
// elsewhere; by induction along the chain every edge is then entered with right rows. An edge that differs in
// one step from its likes is kept.
struct ShortenedPlan {
  Plan plan;
  std::vector<Stage> chain;
};
ShortenedPlan without_repeats(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid);

// The step plans that together exercise a configuration: one row somewhere, idle replicas, uneven replicas,
// rows that the quantum does not divide, no row at all, several rows of every home, no wanted logits.
std::vector<StepPlan> probing_step_plans(const StepShape& shape, Forward forward = Forward::kTarget);

}  // namespace lockstep::planning
