#include "lockstep/planning/layout_paths.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

namespace lockstep::planning {
namespace {

// One step turns `from` into `to` along any axes that have `from`.
struct Move {
  StepKind kind;
  Placement from, to;
};
constexpr Move kMoves[] = {
    {StepKind::kAllReduce, Placement::kPartial, Placement::kReplicate},
    {StepKind::kReduceScatter, Placement::kPartial, Placement::kShard},
    {StepKind::kAllGather, Placement::kShard, Placement::kReplicate},
    {StepKind::kSlice, Placement::kReplicate, Placement::kShard},
    {StepKind::kColumnsToRows, Placement::kColumns, Placement::kShard},
};

int64_t ps_of(const Estimate& estimate) {
  constexpr double kMost = 1e9;  // a machine without a link, or without a memory, costs this: 1000 s
  return std::llround((estimate.us < kMost ? estimate.us : kMost) * 1e6);
}

}  // namespace

Price price_of(const Step& step, const PlanningContext& context, const Load& load) {
  const bool counts_bytes = context.least == PlanningContext::Least::kBytes;
  return {.bytes = counts_bytes ? std::llround(wire_bytes(step, context.grid, context.machine, load)) : 0,
          .ps = ps_of(estimate(step, context.grid, context.machine, load)),
          .num_steps = 1};
}

Price price_of(const Signature& signature, const PlanningContext& context, const Load& load) {
  return {.ps = ps_of(estimate(signature, context.grid, context.machine, load))};
}

LayoutPaths::LayoutPaths(const PlanningContext& context, const Load& load)
    : context_(context), load_(load), from_(size_t{1} << (2 * context.grid.num_axes())) {}

std::optional<Price> LayoutPaths::price(Layout from, Layout to) {
  const Reached& end = ways_from(from)[to.bits()];
  return end.is_reached ? std::optional(end.price) : std::nullopt;
}

std::vector<Step> LayoutPaths::steps(Layout from, Layout to, Value value) {
  const Ways& ways = ways_from(from);
  LOCKSTEP_CHECK(ways[to.bits()].is_reached, "no way from layout {} to {}", from.bits(), to.bits());
  std::vector<Step> steps;
  for (Layout at = to; at != from; at = ways[at.bits()].previous) {
    steps.push_back(ways[at.bits()].step);
    steps.back().value = value;
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

const LayoutPaths::Ways& LayoutPaths::ways_from(Layout from) {
  Ways& ways = from_[from.bits()];
  if (ways.empty()) search(from, ways);
  return ways;
}

// Dijkstra. Every step costs at least one step, so prices grow along a way and a layout that is taken from
// the queue has its final predecessor.
void LayoutPaths::search(Layout from, Ways& ways) const {
  ways.resize(from_.size());
  ways[from.bits()].is_reached = true;
  using Entry = std::pair<Price, Layout>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  queue.push({{}, from});
  while (!queue.empty()) {
    const auto [price, at] = queue.top();
    queue.pop();
    if (ways[at.bits()].price < price) continue;
    for (const Move& move : kMoves) {
      const uint32_t eligible = at.axes_with(move.from, context_.grid).bits();
      for (uint32_t axes = eligible; axes != 0; axes = (axes - 1) & eligible) {
        // Joined in parts, columns would come out in another order.
        if (move.kind == StepKind::kColumnsToRows && axes != eligible) continue;
        const Layout to = at.with(AxisSet(axes), move.to);
        const Step step{.kind = move.kind, .over = AxisSet(axes), .before = at, .after = to};
        const Price next = price + price_of(step, context_, load_);
        Reached& end = ways[to.bits()];
        const auto rank = [](const Price& total, const Step& last) {
          return std::tuple(total, last.kind, last.over);
        };
        if (end.is_reached && rank(end.price, end.step) <= rank(next, step)) continue;
        const bool is_cheaper = !end.is_reached || next < end.price;
        end = {next, at, step, true};
        if (is_cheaper) queue.push({next, to});
      }
    }
  }
}

}  // namespace lockstep::planning
