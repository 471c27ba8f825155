#pragma once
// stages + grid + machine -> plan. Pure and deterministic: no clock, no environment, no device.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/planning/cost_model.h"
#include "lockstep/planning/plan.h"

namespace lockstep::planning {

struct PlanningContext {
  const RankGrid& grid;
  const Machine& machine;
  Load load;
  // What a plan has least of: predicted time, or bytes out of a rank and of those the least time.
  enum class Least : uint8_t { kTime, kBytes } least = Least::kTime;
};

// A named rewrite of a plan. Skipping one never changes an answer, only its cost.
struct Pass {
  std::string_view name;
  std::function<Plan(const Plan&, const PlanningContext&)> run;
};
std::span<const Pass> default_passes();

// What is not a rewrite but can be left out by name too: the choice of layouts. Without it the residual stays
// as attention holds it, and each edge is the cheapest from there and back.
inline constexpr std::string_view kChooseLayouts = "choose_layouts";

// Nor is this: to send more bytes where fewer collectives make the step faster. Without it a plan sends as
// few bytes as any, whatever that takes.
inline constexpr std::string_view kTradeBytes = "trade_bytes_for_latency";

struct PlannerOptions {
  std::vector<std::string> skip_passes;  // by name; an unknown name is an error that lists the known ones
  // Called with the plan that the search made (as kChooseLayouts) and after every pass; its error ends
  // planning.
  std::function<Status(std::string_view pass, const Plan&)> after_pass = {};
};

// The cheapest chain of signatures and steps under the cost model, the residual's layouts included, then the
// passes. Prices are integers, so ties are exact; they go to fewer steps, then to what is declared or
// numbered first (signatures, layouts, step kinds), so that every host makes the same plan.
Result<Plan> make_plan(std::span<const Stage> chain, const PlanningContext& context,
                       const PlannerOptions& options = {});

}  // namespace lockstep::planning
