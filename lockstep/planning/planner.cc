#include "lockstep/planning/planner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <tuple>

#include "lockstep/planning/passes/fuse_all_reduce_add_norm.h"

namespace lockstep::planning {
namespace {

// Where an edge's walk stands: what hidden and residual look like, and what was done.
enum class Phase : uint8_t { kGiven, kAdded, kNormed };
struct State {
  Phase phase = Phase::kGiven;
  Layout hidden, residual;
  auto operator<=>(const State&) const = default;
};

struct Price {
  double us = 0;
  int num_steps = 0;
  auto operator<=>(const Price&) const = default;
};
Price operator+(const Price& a, const Price& b) { return {a.us + b.us, a.num_steps + b.num_steps}; }

enum class EdgeKind : uint8_t { kFirst, kInner, kIntoHead, kIntoSampler };

EdgeKind kind_of(const Stage& from, const Stage& to) {
  if (from.kind == StageKind::kEmbedding) return EdgeKind::kFirst;
  if (to.kind == StageKind::kHead) return EdgeKind::kIntoHead;
  if (to.kind == StageKind::kSampler) return EdgeKind::kIntoSampler;
  return EdgeKind::kInner;
}

// Shortest paths from one state over one kind of edge (Dijkstra). Reached states keep the step that reached
// them.
class EdgeSearch {
 public:
  EdgeSearch(const PlanningContext& context, EdgeKind kind, const State& from)
      : context_(context), kind_(kind) {
    best_[from] = {};
    queue_.push({{}, from});
    while (!queue_.empty()) {
      const auto [price, state] = queue_.top();
      queue_.pop();
      if (best_.at(state).price < price) continue;
      expand(state, price);
    }
  }

  struct Reached {
    Price price;
    std::optional<State> previous;
    Step step;
  };
  const std::map<State, Reached>& reached() const { return best_; }

  std::vector<Step> path_to(State state) const {
    std::vector<Step> steps;
    for (const Reached* at = &best_.at(state); at->previous; at = &best_.at(*at->previous))
      steps.push_back(at->step);
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

 private:
  void expand(const State& state, const Price& price) {
    const RankGrid& grid = context_.grid;
    move(state, price, StepKind::kAllReduce, Value::kHidden, Placement::kPartial, Placement::kReplicate);
    move(state, price, StepKind::kReduceScatter, Value::kHidden, Placement::kPartial, Placement::kShard);
    move(state, price, StepKind::kAllGather, Value::kHidden, Placement::kShard, Placement::kReplicate);
    move(state, price, StepKind::kSlice, Value::kHidden, Placement::kReplicate, Placement::kShard);
    if (kind_ == EdgeKind::kIntoSampler) {
      move(state, price, StepKind::kColumnsToRows, Value::kHidden, Placement::kColumns, Placement::kShard);
      return;
    }
    if (state.phase != Phase::kGiven) {
      if (state.phase == Phase::kAdded) {
        State normed = state;
        normed.phase = Phase::kNormed;
        normed.hidden = state.residual;
        take(state, price, normed,
             {.kind = StepKind::kNorm, .before = state.residual, .after = state.residual});
      }
      return;
    }
    move(state, price, StepKind::kAllGather, Value::kResidual, Placement::kShard, Placement::kReplicate);
    move(state, price, StepKind::kSlice, Value::kResidual, Placement::kReplicate, Placement::kShard);
    const bool whole = state.hidden.axes_with(Placement::kPartial, grid).empty();
    const StepKind joins = kind_ == EdgeKind::kFirst ? StepKind::kSeed : StepKind::kAdd;
    if (whole && (kind_ == EdgeKind::kFirst || state.hidden == state.residual)) {
      State added = state;
      added.phase = Phase::kAdded;
      added.residual = state.hidden;
      take(state, price, added,
           {.kind = joins, .value = Value::kResidual, .before = state.hidden, .after = state.hidden});
    }
  }

  // Every way to turn placement `from` of a value into `to` along a non-empty set of axes with one step.
  void move(const State& state, const Price& price, StepKind kind, Value value, Placement from,
            Placement to) {
    if (state.phase == Phase::kAdded)
      return;  // the norm comes first: its input is the residual as it was added
    const Layout& layout = value == Value::kHidden ? state.hidden : state.residual;
    const uint32_t eligible = layout.axes_with(from, context_.grid).bits();
    for (uint32_t subset = eligible; subset != 0; subset = (subset - 1) & eligible) {
      const AxisSet over(subset);
      State next = state;
      (value == Value::kHidden ? next.hidden : next.residual) = layout.with(over, to);
      take(state, price, next,
           {.kind = kind, .value = value, .over = over, .before = layout, .after = layout.with(over, to)});
    }
  }

  void take(const State& from, const Price& price, const State& to, const Step& step) {
    const Price next = price + Price{estimate(step, context_.grid, context_.machine, context_.load).us, 1};
    const auto found = best_.find(to);
    if (found != best_.end() && found->second.price <= next) return;
    best_[to] = {next, from, step};
    queue_.push({next, to});
  }

  const PlanningContext& context_;
  const EdgeKind kind_;
  std::map<State, Reached> best_;
  using Entry = std::pair<Price, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// What the cheapest way to a stage's output with this hidden and residual layout was.
struct Arrival {
  Price price;
  State before;       // state at the previous stage's output
  State reached;      // state at the end of the edge
  int signature = 0;  // of this stage
};
using Frontier = std::map<std::pair<Layout, Layout>, Arrival>;  // (hidden, residual) after the stage

class ChainSearch {
 public:
  ChainSearch(std::span<const Stage> chain, const PlanningContext& context)
      : chain_(chain), context_(context) {}

  Result<Plan> run() {
    LOCKSTEP_CHECK_GE(chain_.size(), size_t{2});
    frontiers_.emplace_back();
    for (int s = 0; s < static_cast<int>(chain_[0].signatures.size()); ++s) {
      const Signature& signature = chain_[0].signatures[s];
      offer(frontiers_[0], {signature.gives, Layout()},
            {.price = stage_price(signature), .before = {}, .reached = {}, .signature = s});
    }
    for (size_t at = 1; at < chain_.size(); ++at) {
      frontiers_.push_back(advance(at));
      if (frontiers_.back().empty())
        return invalid_argument("", "no steps lead from {} to {}", name_of(chain_[at - 1].kind),
                                name_of(chain_[at].kind));
    }
    return backtrack();
  }

 private:
  Price stage_price(const Signature& signature) const {
    return {estimate(signature, context_.grid, context_.machine, context_.load).us, 0};
  }

  static void offer(Frontier& frontier, const std::pair<Layout, Layout>& key, const Arrival& arrival) {
    const auto [at, inserted] = frontier.try_emplace(key, arrival);
    if (!inserted && arrival.price < at->second.price) at->second = arrival;
  }

  const EdgeSearch& search(EdgeKind kind, const State& from) {
    const auto key = std::make_tuple(kind, from);
    const auto found = searches_.find(key);
    if (found != searches_.end()) return found->second;
    return searches_.try_emplace(key, context_, kind, from).first->second;
  }

  Frontier advance(size_t at) {
    Frontier next;
    const EdgeKind kind = kind_of(chain_[at - 1], chain_[at]);
    const Phase last = kind == EdgeKind::kIntoSampler ? Phase::kGiven : Phase::kNormed;
    for (const auto& [layouts, arrival] : frontiers_[at - 1]) {
      const State from{Phase::kGiven, layouts.first, layouts.second};
      for (const auto& [state, reached] : search(kind, from).reached()) {
        if (state.phase != last) continue;
        for (int s = 0; s < static_cast<int>(chain_[at].signatures.size()); ++s) {
          const Signature& signature = chain_[at].signatures[s];
          if (signature.needs != state.hidden) continue;
          offer(next, {signature.gives, state.residual},
                {arrival.price + reached.price + stage_price(signature), from, state, s});
        }
      }
    }
    return next;
  }

  Plan backtrack() {
    auto best = frontiers_.back().begin();
    for (auto at = frontiers_.back().begin(); at != frontiers_.back().end(); ++at)
      if (at->second.price < best->second.price) best = at;
    Plan plan;
    plan.edges.resize(chain_.size() - 1);
    auto key = best->first;
    for (size_t at = chain_.size() - 1; at > 0; --at) {
      const Arrival& arrival = frontiers_[at].at(key);
      key = {arrival.before.hidden, arrival.before.residual};
      plan.edges[at - 1] = edge(at, arrival, frontiers_[at - 1].at(key));
    }
    return plan;
  }

  Edge edge(size_t at, const Arrival& arrival, const Arrival& before) {
    const Stage &from = chain_[at - 1], &to = chain_[at];
    const Signature& gave = from.signatures[before.signature];
    const Signature& takes = to.signatures[arrival.signature];
    Edge edge{{from.kind, from.layer}, {to.kind, to.layer}, gave.gives, takes.needs, {}};
    const EdgeKind kind = kind_of(from, to);
    if (from.kind == StageKind::kExperts)
      edge.steps.push_back(
          {.kind = StepKind::kCombine, .over = gave.exchange, .before = gave.needs, .after = gave.gives});
    if (kind == EdgeKind::kIntoHead)
      edge.steps.push_back({.kind = StepKind::kSelect, .before = gave.gives, .after = gave.gives});
    for (const Step& step : search(kind, arrival.before).path_to(arrival.reached)) edge.steps.push_back(step);
    if (to.kind == StageKind::kExperts)
      edge.steps.push_back(
          {.kind = StepKind::kDispatch, .over = takes.exchange, .before = takes.needs, .after = takes.needs});
    return edge;
  }

  std::span<const Stage> chain_;
  const PlanningContext& context_;
  std::vector<Frontier> frontiers_;
  std::map<std::tuple<EdgeKind, State>, EdgeSearch> searches_;
};

void number_steps(Plan& plan) {
  uint32_t id = 0;
  for (Edge& edge : plan.edges)
    for (Step& step : edge.steps) step.id = id++;
}

Status check_pass_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::string known;
    for (const Pass& pass : default_passes()) known += (known.empty() ? "" : ", ") + std::string(pass.name);
    const auto passes = default_passes();
    if (std::none_of(passes.begin(), passes.end(), [&](const Pass& pass) { return pass.name == name; }))
      return invalid_argument("--skip-pass", "there is no pass \"{}\"; the passes are: {}", name, known);
  }
  return Done{};
}

}  // namespace

std::span<const Pass> default_passes() {
  static const Pass passes[] = {{"fuse_all_reduce_add_norm", fuse_all_reduce_add_norm}};
  return passes;
}

Result<Plan> make_plan(std::span<const Stage> chain, const PlanningContext& context,
                       const PlannerOptions& options) {
  if (const auto names = check_pass_names(options.skip_passes); !names) return names.error();
  auto plan = ChainSearch(chain, context).run();
  if (!plan) return plan;
  for (const Pass& pass : default_passes()) {
    const auto& skip = options.skip_passes;
    if (std::find(skip.begin(), skip.end(), pass.name) == skip.end()) *plan = pass.run(*plan, context);
  }
  number_steps(*plan);
  return plan;
}

}  // namespace lockstep::planning
