#include <algorithm>
#include <map>
#include <tuple>

#include "lockstep/planning/verifier.h"

namespace lockstep::planning {
namespace {

// Where a chain stands between a stage and the edge that leaves it.
struct Standing {
  StageKind stage;
  Layout needs, gives, residual;
  AxisSet exchange;
  auto operator<=>(const Standing&) const = default;
};

// All that decides what an edge does.
using StepKey = std::tuple<StepKind, Value, AxisSet, Layout, Layout>;
using EdgeKey = std::tuple<Standing, Standing, std::vector<StepKey>>;

Layout residual_after(const Edge& edge, Layout residual) {
  for (const Step& step : edge.steps)
    if (step.value == Value::kResidual) residual = step.after;
  return residual;
}

Standing standing_at(const Plan& plan, std::span<const Stage> chain, size_t at, Layout residual) {
  const Layout* needs = at > 0 ? &plan.edges[at - 1].needed : nullptr;
  const Layout* gives = at < plan.edges.size() ? &plan.edges[at].given : nullptr;
  const Signature* runs = signature_of(chain[at], needs, gives);
  LOCKSTEP_CHECK(runs != nullptr, "stage {} of {} has no signature that fits the plan", at, chain.size());
  return {chain[at].kind, runs->needs, runs->gives, residual, runs->exchange};
}

EdgeKey key_of(const Edge& edge, const Standing& from, const Standing& to) {
  std::vector<StepKey> steps;
  for (const Step& step : edge.steps)
    steps.emplace_back(step.kind, step.value, step.over, step.before, step.after);
  return {from, to, std::move(steps)};
}

}  // namespace

ShortenedPlan without_repeats(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid) {
  if (const auto faults = check_structure(plan, chain, grid); !faults.empty())
    return {plan, {chain.begin(), chain.end()}};
  std::vector<Standing> standings = {standing_at(plan, chain, 0, Layout())};
  std::vector<EdgeKey> keys;
  for (size_t at = 0; at < plan.edges.size(); ++at) {
    const Layout residual = residual_after(plan.edges[at], standings.back().residual);
    standings.push_back(standing_at(plan, chain, at + 1, residual));
    keys.push_back(key_of(plan.edges[at], standings[at], standings[at + 1]));
  }
  std::map<EdgeKey, int> numbers;  // equal edges have equal numbers
  std::vector<int> number;
  for (const EdgeKey& key : keys) number.push_back(numbers.try_emplace(key, numbers.size()).first->second);

  ShortenedPlan kept;
  std::vector<bool> is_kept(numbers.size());
  size_t at = 0;
  while (at < plan.edges.size()) {
    // The longest stretch from here that ends where it began and holds nothing new.
    size_t resume = at;
    for (size_t end = at; end < plan.edges.size() && is_kept[number[end]]; ++end)
      if (standings[end + 1] == standings[at]) resume = end + 1;
    if (resume > at) {
      at = resume;
      continue;
    }
    kept.chain.push_back(chain[at]);
    kept.plan.edges.push_back(plan.edges[at]);
    is_kept[number[at]] = true;
    ++at;
  }
  kept.chain.push_back(chain.back());
  // Where a stretch was left out, the edge before it now leads to the stage that follows it.
  for (size_t i = 0; i < kept.plan.edges.size(); ++i) kept.plan.edges[i].to.layer = kept.chain[i + 1].layer;
  return kept;
}

}  // namespace lockstep::planning
