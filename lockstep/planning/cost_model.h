#pragma once
// Microseconds of a step or a stage on a machine, and what binds them. Assumes rows spread evenly over
// replicas and routing spread evenly over experts; it ranks plans and explains them, it does not promise
// times.
#include <string>
#include <string_view>

#include "lockstep/planning/machine.h"
#include "lockstep/planning/plan.h"

namespace lockstep::planning {

// The load that a plan is made for.
struct Load {
  int rows_per_replica = 1;  // padded
  int hidden = 1;            // features of a row
  int top_k = 1;             // copies of a row that a dispatch sends at most
};

struct Estimate {
  double us = 0;
  std::string_view bound_by = "nothing";  // "latency", "link", "memory", "arithmetic", "launch"
};

double rows_held(const Layout& layout, const RankGrid& grid,
                 int rows_per_replica);  // by one rank, on average
double wire_bytes(const Step& step, const RankGrid& grid, const Machine& machine,
                  const Load& load);  // out of one rank
Estimate estimate(const Step& step, const RankGrid& grid, const Machine& machine, const Load& load);
Estimate estimate(const Signature& signature, const RankGrid& grid, const Machine& machine, const Load& load);

// Every step with its estimate, and the sums of both: the text of `lockstep plan --explain`.
std::string explain(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load);
double total_us(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load);

}  // namespace lockstep::planning
