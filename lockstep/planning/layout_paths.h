#pragma once
// The cheapest chains of communication steps between two layouts of one value. Internal to planning: only the
// planner includes it.
#include <optional>
#include <vector>

#include "lockstep/planning/planner.h"

namespace lockstep::planning {

// What the planner minimizes, in exact integers: sums do not depend on their order, so ties are ties on every
// host.
struct Price {
  int64_t bytes = 0;  // out of a rank, where the context wants least of them; else 0
  int64_t ps = 0;     // picoseconds
  int num_steps = 0;
  auto operator<=>(const Price&) const = default;
};
constexpr Price operator+(const Price& a, const Price& b) {
  return {a.bytes + b.bytes, a.ps + b.ps, a.num_steps + b.num_steps};
}
Price price_of(const Step& step, const PlanningContext& context, const Load& load);
Price price_of(const Signature& signature, const PlanningContext& context, const Load& load);

class LayoutPaths {
 public:
  LayoutPaths(const PlanningContext& context, const Load& load);

  // nullopt where no steps lead from one to the other: nothing turns whole rows back into addends.
  std::optional<Price> price(Layout from, Layout to);
  std::vector<Step> steps(Layout from, Layout to, Value value);

 private:
  struct Reached {
    Price price;
    Layout previous;
    Step step;  // the last one of the cheapest way; none at the start
    bool is_reached = false;
  };
  using Ways = std::vector<Reached>;  // by the bits of the layout that is reached

  const Ways& ways_from(Layout from);
  void search(Layout from, Ways& ways) const;

  const PlanningContext& context_;
  const Load load_;
  std::vector<Ways> from_;  // by the bits of the first layout; empty until asked for
};

}  // namespace lockstep::planning
