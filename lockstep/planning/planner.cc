#include "lockstep/planning/planner.h"

#include <algorithm>
#include <map>
#include <optional>

#include "lockstep/planning/layout_paths.h"
#include "lockstep/planning/passes/fuse_all_reduce_add_norm.h"
#include "lockstep/planning/passes/fuse_combine_add.h"
#include "lockstep/planning/passes/fuse_scatter_add_norm_gather.h"
#include "lockstep/planning/passes/merge_gathers.h"

namespace lockstep::planning {
namespace {

// kOfNormed: what leaves a tap or latents was normed before it.
enum class EdgeKind : uint8_t { kFirst, kInner, kIntoHead, kOfNormed, kIntoSampler };

bool only_moves(EdgeKind kind) { return kind == EdgeKind::kOfNormed || kind == EdgeKind::kIntoSampler; }

EdgeKind kind_of(const Stage& from, const Stage& to) {
  if (from.kind == StageKind::kEmbedding || from.kind == StageKind::kJoin) return EdgeKind::kFirst;
  if (from.kind == StageKind::kTap || from.kind == StageKind::kLatents) return EdgeKind::kOfNormed;
  if (to.kind == StageKind::kHead) return EdgeKind::kIntoHead;
  if (to.kind == StageKind::kSampler) return EdgeKind::kIntoSampler;
  return EdgeKind::kInner;
}

// Steps that a stage's signature brings with it, whatever the way between.
Step combine_of(const Signature& signature) {
  return {.kind = StepKind::kCombine,
          .over = signature.exchange,
          .before = signature.needs,
          .after = signature.gives};
}
Step dispatch_of(const Signature& signature) {
  return {.kind = StepKind::kDispatch,
          .over = signature.exchange,
          .before = signature.needs,
          .after = signature.needs};
}
Step join_of(EdgeKind kind, Layout rows) {
  return {.kind = kind == EdgeKind::kFirst ? StepKind::kSeed : StepKind::kAdd,
          .value = Value::kResidual,
          .before = rows,
          .after = rows};
}
Step norm_of(Layout rows) { return {.kind = StepKind::kNorm, .before = rows, .after = rows}; }

// The cheapest way to the output of a stage that runs by this signature and leaves the residual like this.
// Between two stages hidden and residual go to a layout in which they are added; the sum may go on to another
// one (a gather here serves both values); it is normed, and the normed rows go to what the stage needs. These
// parts share nothing but the two layouts, so the cheapest way by way of them is the sum of their cheapest
// ways.
struct Arrival {
  Price price;
  int signature = 0;    // of this stage
  Layout joined;        // where hidden was added to the residual
  Layout residual;      // where it was normed, and stays
  size_t previous = 0;  // index of the arrival at the stage before
};
using Frontier = std::vector<Arrival>;

class ChainSearch {
 public:
  enum class Layouts : uint8_t { kCheapest, kOfAttention };

  ChainSearch(std::span<const Stage> chain, const PlanningContext& context, Layouts layouts)
      : chain_(chain),
        context_(context),
        all_rows_(context, context.load),
        wanted_rows_(context, after_select(context.load)),
        latents_(context, load_on(StageKind::kLatents, context.load)) {
    const uint32_t axes = context.grid.all().bits();
    if (layouts == Layouts::kOfAttention) {
      whole_rows_.push_back(Layout().with(context.grid.attention_dp(), Placement::kShard));
      return;
    }
    for (uint32_t subset = 0; subset <= axes; ++subset)
      whole_rows_.push_back(Layout().with(AxisSet(subset), Placement::kShard));
  }

  Result<Plan> run() {
    LOCKSTEP_CHECK_GE(chain_.size(), size_t{2});
    frontiers_.emplace_back();
    for (int s = 0; s < static_cast<int>(chain_[0].signatures.size()); ++s)
      frontiers_[0].push_back({stage_price(0, s), s, Layout(), Layout(), 0});
    for (size_t at = 1; at < chain_.size(); ++at) {
      const EdgeKind kind = kind_of(chain_[at - 1], chain_[at]);
      frontiers_.push_back(only_moves(kind) ? move_on(at) : advance(at, kind));
      if (frontiers_.back().empty())
        return invalid_argument("", "no steps lead from {} to {}", name_of(chain_[at - 1].kind),
                                name_of(chain_[at].kind));
    }
    return backtrack();
  }

 private:
  const Signature& signature(size_t at, const Arrival& arrival) const {
    return chain_[at].signatures[arrival.signature];
  }
  LayoutPaths& paths_into(size_t at) {
    if (chain_[at - 1].kind == StageKind::kLatents) return latents_;
    return sees_wanted_rows(chain_[at].kind) ? wanted_rows_ : all_rows_;
  }
  Load load_into(size_t at) const {
    return sees_wanted_rows(chain_[at].kind) ? after_select(context_.load) : context_.load;
  }
  Price step_price(const Step& step, const Load& load) const { return price_of(step, context_, load); }
  Price stage_price(size_t at, int s) const {
    const Signature& signature = chain_[at].signatures[s];
    const Price price = price_of(signature, context_, load_into(at));
    if (chain_[at].kind != StageKind::kExperts) return price;
    return price + step_price(dispatch_of(signature), context_.load) +
           step_price(combine_of(signature), context_.load);
  }

  static void offer(std::optional<Arrival>& best, const Arrival& arrival) {
    if (!best || arrival.price < best->price) best = arrival;
  }

  // The cheapest way to add hidden to the residual in `rows`.
  std::optional<Arrival> join(size_t at, EdgeKind kind, Layout rows) {
    std::optional<Arrival> best;
    LayoutPaths& paths = paths_into(at);
    for (size_t from = 0; from < frontiers_[at - 1].size(); ++from) {
      const Arrival& arrival = frontiers_[at - 1][from];
      const auto hidden = paths.price(signature(at - 1, arrival).gives, rows);
      const auto residual =
          kind == EdgeKind::kFirst ? std::optional(Price()) : paths.price(arrival.residual, rows);
      if (hidden && residual) offer(best, {arrival.price + *hidden + *residual, 0, rows, rows, from});
    }
    if (best) best->price = best->price + step_price(join_of(kind, rows), load_into(at));
    return best;
  }

  // For every layout of whole rows the cheapest way to have both values there, normed.
  Frontier normed(size_t at, EdgeKind kind) {
    Frontier joined, normed;
    for (const Layout rows : whole_rows_)
      if (auto arrival = join(at, kind, rows)) joined.push_back(*arrival);
    for (const Layout rows : whole_rows_) {
      std::optional<Arrival> best;
      for (const Arrival& arrival : joined)
        if (const auto way = paths_into(at).price(arrival.joined, rows))
          offer(best, {arrival.price + *way, 0, arrival.joined, rows, arrival.previous});
      if (!best) continue;
      best->price = best->price + step_price(norm_of(rows), load_into(at));
      normed.push_back(*best);
    }
    return normed;
  }

  Frontier advance(size_t at, EdgeKind kind) {
    Frontier next;
    for (const Arrival& arrival : normed(at, kind))
      for (int s = 0; s < static_cast<int>(chain_[at].signatures.size()); ++s)
        if (const auto way = paths_into(at).price(arrival.residual, chain_[at].signatures[s].needs))
          next.push_back({arrival.price + *way + stage_price(at, s), s, arrival.joined, arrival.residual,
                          arrival.previous});
    return next;
  }

  // Into the sampler, and from what was normed already: hidden is only moved, and the residual stays.
  Frontier move_on(size_t at) {
    Frontier next;
    for (int s = 0; s < static_cast<int>(chain_[at].signatures.size()); ++s) {
      std::map<Layout, Arrival> best;  // by the residual's layout
      for (size_t from = 0; from < frontiers_[at - 1].size(); ++from) {
        const Arrival& arrival = frontiers_[at - 1][from];
        const auto way =
            paths_into(at).price(signature(at - 1, arrival).gives, chain_[at].signatures[s].needs);
        if (!way) continue;
        const Arrival there{arrival.price + *way + stage_price(at, s), s, Layout(), arrival.residual, from};
        const auto [held, is_new] = best.try_emplace(arrival.residual, there);
        if (!is_new && there.price < held->second.price) held->second = there;
      }
      for (const auto& [residual, arrival] : best) next.push_back(arrival);
    }
    return next;
  }

  Plan backtrack() {
    const auto cheaper = [](const Arrival& a, const Arrival& b) { return a.price < b.price; };
    const Frontier& last = frontiers_.back();
    size_t index = std::min_element(last.begin(), last.end(), cheaper) - last.begin();
    Plan plan;
    plan.edges.resize(chain_.size() - 1);
    for (size_t at = chain_.size() - 1; at > 0; --at) {
      const Arrival& arrival = frontiers_[at][index];
      index = arrival.previous;
      plan.edges[at - 1] = edge(at, frontiers_[at - 1][index], arrival);
    }
    return plan;
  }

  Edge edge(size_t at, const Arrival& before, const Arrival& arrival) {
    const Stage &from = chain_[at - 1], &to = chain_[at];
    const Signature& gave = signature(at - 1, before);
    const Signature& takes = signature(at, arrival);
    const EdgeKind kind = kind_of(from, to);
    Edge edge{{from.kind, from.layer}, {to.kind, to.layer}, gave.gives, takes.needs, {}};
    const auto take = [&](std::vector<Step> steps) {
      edge.steps.insert(edge.steps.end(), steps.begin(), steps.end());
    };
    LayoutPaths& paths = paths_into(at);
    if (from.kind == StageKind::kExperts) take({combine_of(gave)});
    if (to.kind == StageKind::kHead)
      take({{.kind = StepKind::kSelect, .before = gave.gives, .after = gave.gives}});
    if (only_moves(kind)) {
      take(paths.steps(gave.gives, takes.needs, Value::kHidden));
      return edge;
    }
    take(paths.steps(gave.gives, arrival.joined, Value::kHidden));
    if (kind != EdgeKind::kFirst) take(paths.steps(before.residual, arrival.joined, Value::kResidual));
    take({join_of(kind, arrival.joined)});
    take(paths.steps(arrival.joined, arrival.residual, Value::kResidual));
    take({norm_of(arrival.residual)});
    take(paths.steps(arrival.residual, takes.needs, Value::kHidden));
    if (to.kind == StageKind::kExperts) take({dispatch_of(takes)});
    return edge;
  }

  std::span<const Stage> chain_;
  const PlanningContext& context_;
  LayoutPaths all_rows_, wanted_rows_, latents_;
  std::vector<Layout> whole_rows_;  // every layout without addends: sharded along some axes
  std::vector<Frontier> frontiers_;
};

void number_steps(Plan& plan) {
  uint32_t id = 0;
  for (Edge& edge : plan.edges)
    for (Step& step : edge.steps) step.id = id++;
}

Status check_pass_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::string known = fmt::format("{}, {}", kChooseLayouts, kTradeBytes);
    for (const Pass& pass : default_passes()) known += ", " + std::string(pass.name);
    const auto passes = default_passes();
    if (name == kChooseLayouts || name == kTradeBytes) continue;
    if (std::none_of(passes.begin(), passes.end(), [&](const Pass& pass) { return pass.name == name; }))
      return invalid_argument("--skip-pass", "there is no pass \"{}\"; the passes are: {}", name, known);
  }
  return Done{};
}

}  // namespace

std::span<const Pass> default_passes() {
  static const Pass passes[] = {{"merge_gathers", merge_gathers},
                                {"fuse_all_reduce_add_norm", fuse_all_reduce_add_norm},
                                {"fuse_scatter_add_norm_gather", fuse_scatter_add_norm_gather},
                                {"fuse_combine_add", fuse_combine_add}};
  return passes;
}

Result<Plan> make_plan(std::span<const Stage> chain, const PlanningContext& context,
                       const PlannerOptions& options) {
  if (const auto names = check_pass_names(options.skip_passes); !names) return names.error();
  const auto is_skipped = [&](std::string_view name) {
    const auto& skip = options.skip_passes;
    return std::find(skip.begin(), skip.end(), name) != skip.end();
  };
  const auto look = [&](std::string_view name, Plan& plan) -> Status {
    number_steps(plan);
    return options.after_pass ? options.after_pass(name, plan) : Status(Done{});
  };
  using Layouts = ChainSearch::Layouts;
  PlanningContext searched = context;
  if (is_skipped(kTradeBytes)) searched.least = PlanningContext::Least::kBytes;
  auto plan =
      ChainSearch(chain, searched, is_skipped(kChooseLayouts) ? Layouts::kOfAttention : Layouts::kCheapest)
          .run();
  if (!plan) return plan;
  if (const Status status = look(kChooseLayouts, *plan); !status) return status.error();
  for (const Pass& pass : default_passes()) {
    if (is_skipped(pass.name)) continue;
    *plan = pass.run(*plan, context);
    if (const Status status = look(pass.name, *plan); !status) return status.error();
  }
  return plan;
}

}  // namespace lockstep::planning
