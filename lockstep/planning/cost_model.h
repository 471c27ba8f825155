#pragma once
// Microseconds of a step or a stage on a machine, and what binds them. Assumes rows spread evenly over
// replicas and routing spread evenly over experts; it ranks plans and explains them, it does not promise
// times.
#include <span>
#include <string>
#include <string_view>

#include "lockstep/planning/machine.h"
#include "lockstep/planning/plan.h"

namespace lockstep::planning {

// The load that a plan is made for.
struct Load {
  int rows_per_replica = 1;        // padded
  int hidden = 1;                  // features of a row
  int top_k = 1;                   // copies of a row that a dispatch sends at most
  int logit_rows_per_replica = 0;  // rows that are left after a select; 0: all
  int vocab = 0;                   // features of a row after the head; 0: as many as hidden
  int context = 0;                 // earlier tokens that a row of attention reads from the cache
  int latent = 0;                  // features of a row between latents and attention
  bool operator==(const Load&) const = default;
};
// The load of what follows a select: the wanted rows only.
Load after_select(const Load& load);
// And of an edge: what leaves latents is narrower than a row.
Load load_on(StageKind from, const Load& load);

struct Estimate {
  double us = 0;
  std::string_view bound_by = "nothing";  // "latency", "link", "host link", "memory", "arithmetic", "launch"
};

double rows_held(const Layout& layout, const RankGrid& grid,
                 int rows_per_replica);  // by one rank, on average
// Of the bytes of a step, the share that goes to other hosts where ranks of a group are spread evenly.
double share_between_hosts(AxisSet over, const RankGrid& grid, const Machine& machine);
double wire_bytes(const Step& step, const RankGrid& grid, const Machine& machine,
                  const Load& load);  // out of one rank
Estimate estimate(const Step& step, const RankGrid& grid, const Machine& machine, const Load& load);
Estimate estimate(const Signature& signature, const RankGrid& grid, const Machine& machine, const Load& load);

// The steps of a plan; those after a select with the load that it leaves.
double total_us(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load);
double total_wire_bytes(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load);
// The steps, and each stage by the signature that the plan runs it with: what the planner makes smallest.
double total_us(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid, const Machine& machine,
                const Load& load);

// Every step with its estimate, and the sums of both: the text of `lockstep plan --explain`.
std::string explain(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load);

}  // namespace lockstep::planning
