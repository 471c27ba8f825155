#include "lockstep/planning/trace.h"

#include <algorithm>

#include "lockstep/planning/row_map.h"

namespace lockstep::planning {
namespace {

class Tracer {
 public:
  Tracer(const RankGrid& grid, const StepPlan& step_plan, const TraceSizes& sizes)
      : grid_(grid), step_plan_(step_plan), sizes_(sizes) {}

  std::vector<std::vector<TracedStep>> run(const Plan& plan) {
    std::vector<std::vector<TracedStep>> trace(static_cast<size_t>(grid_.num_ranks()));
    for (const Edge& edge : plan.edges) {
      const std::string name = to_text(edge.from) + " -> " + to_text(edge.to);
      const bool is_narrow = edge.from.kind == StageKind::kLatents && sizes_.latent > 0;
      row_bytes_ = int64_t{is_narrow ? sizes_.latent : sizes_.hidden} * sizes_.bytes_per_value;
      for (const Step& step : edge.steps) {
        for (int rank = 0; rank < grid_.num_ranks(); ++rank)
          trace[static_cast<size_t>(rank)].push_back(traced(step, name, rank));
        if (step.kind == StepKind::kSelect) selected_ = true;
      }
    }
    return trace;
  }

 private:
  std::span<const int32_t> rows_per_home(bool selected) const {
    return selected ? step_plan_.logit_rows_per_home : step_plan_.rows_per_home;
  }
  int64_t rows(const Layout& layout, int rank, bool selected) const {
    return num_rows_of(layout, rank, grid_, rows_per_home(selected));
  }

  TracedStep traced(const Step& step, const std::string& edge, int rank) const {
    TracedStep one{.edge = edge, .id = step.id, .op = step.kind, .value = step.value};
    one.group = grid_.group(rank, step.over);
    one.rows_in = rows(step.before, rank, selected_);
    one.rows_out = rows(step.after, rank, selected_ || step.kind == StepKind::kSelect);
    const Layout counted = layout_of_counts(step);
    for (const int member : one.group) one.counts.push_back(rows(counted, member, selected_));
    if (exchanges(step)) one.capacity = capacity(step, rank);
    one.bytes = bytes(step, one, rank);
    return one;
  }

  static bool exchanges(const Step& step) {
    return step.kind == StepKind::kDispatch || step.kind == StepKind::kCombine ||
           step.kind == StepKind::kFusedCombineAdd;
  }

  static Layout layout_of_counts(const Step& step) {
    switch (step.kind) {
      case StepKind::kReduceScatter:
      case StepKind::kColumnsToRows:
      case StepKind::kSlice:
        return step.after;
      case StepKind::kFusedScatterAddNormGather:
        return step.before.with(step.over, Placement::kShard);
      default:
        return step.before;
    }
  }

  // A rank sends each of its rows to another rank at most once an expert: it needs room for the fullest
  // homes.
  int64_t capacity(const Step& step, int rank) const {
    const auto homes = segments_of(step.before, rank, grid_, step_plan_.rows_per_home).size();
    return static_cast<int64_t>(homes) * step_plan_.max_rows_of_any_home;
  }

  int64_t bytes(const Step& step, const TracedStep& one, int rank) const {
    const auto n = static_cast<int64_t>(one.group.size());
    if (n <= 1) return 0;
    const int64_t row = row_bytes_;
    const int64_t own = rows(layout_of_counts(step), rank, selected_);
    const auto share = [&](int64_t times) { return (times * (n - 1) * one.rows_in * row + n - 1) / n; };
    switch (step.kind) {
      case StepKind::kAllReduce:
      case StepKind::kFusedAllReduceAddNorm:
        return share(2);
      case StepKind::kReduceScatter:
        return (one.rows_in - own) * row;
      case StepKind::kAllGather:
        return (n - 1) * one.rows_in * row;
      case StepKind::kFusedScatterAddNormGather:
        return (one.rows_in - own) * row + (n - 1) * own * row;
      case StepKind::kColumnsToRows:
        return (one.rows_in - own) * ((sizes_.vocab + n - 1) / n) * sizes_.bytes_per_value;
      case StepKind::kDispatch:
      case StepKind::kCombine:
      case StepKind::kFusedCombineAdd:
        return share(std::min<int64_t>(sizes_.top_k, n));
      default:
        return 0;
    }
  }

  const RankGrid& grid_;
  const StepPlan& step_plan_;
  const TraceSizes sizes_;
  int64_t row_bytes_ = 0;  // on this edge
  bool selected_ = false;
};

Json to_json(const TracedStep& step) {
  Json json = {{"edge", step.edge},         {"step", step.id},
               {"op", name_of(step.op)},    {"value", name_of(step.value)},
               {"group", step.group},       {"rows_in", step.rows_in},
               {"rows_out", step.rows_out}, {"counts", step.counts},
               {"bytes", step.bytes}};
  if (step.capacity >= 0) json["capacity"] = step.capacity;
  return json;
}

}  // namespace

std::vector<std::vector<TracedStep>> trace_of(const Plan& plan, const RankGrid& grid,
                                              const StepPlan& step_plan, const TraceSizes& sizes) {
  return Tracer(grid, step_plan, sizes).run(plan);
}

Json to_json(const std::vector<std::vector<TracedStep>>& trace) {
  Json ranks = Json::array();
  for (const auto& steps : trace) {
    Json list = Json::array();
    for (const TracedStep& step : steps) list.push_back(to_json(step));
    ranks.push_back(std::move(list));
  }
  return ranks;
}

}  // namespace lockstep::planning
