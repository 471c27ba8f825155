#include "lockstep/planning/symbolic_ranks.h"

#include <algorithm>
#include <map>

namespace lockstep::planning::symbolic {
namespace {

constexpr uint64_t kPadding = 0xbadbadbadULL;

bool at_home(const RankGrid& grid, int rank, int home, AxisSet over) {
  for (int axis = 0; axis < grid.num_axes(); ++axis)
    if (over.has(axis) && grid.coord(rank, axis) != grid.coord(home, axis)) return false;
  return true;
}

void keep_if(Held& held, const auto& keeps) {
  Held kept;
  for (size_t i = 0; i < held.keys.size(); ++i) {
    if (!keeps(held.keys[i])) continue;
    kept.keys.push_back(held.keys[i]);
    kept.values.push_back(std::move(held.values[i]));
  }
  held = std::move(kept);
}

}  // namespace

Ranks::Ranks(const RankGrid& grid, const StepPlan& step_plan, const VerifierOptions& options)
    : grid_(grid),
      step_plan_(step_plan),
      options_(options),
      hidden_(grid.num_ranks()),
      residual_(grid.num_ranks()) {}

// Padding holds other garbage on every rank: whoever lets it flow into a real row is found out.
uint64_t Ranks::padding_value(int rank, RowKey key) const {
  return mix(kPadding + rank, mix(key.home, key.row));
}

void Ranks::embed(const Signature& signature) {
  hidden_layout_ = signature.gives;
  for (int rank = 0; rank < grid_.num_ranks(); ++rank)
    for (const Segment& segment : segments_of(signature.gives, rank, grid_, step_plan_.rows_per_home))
      for (int32_t row = 0; row < segment.num_rows; ++row) {
        const RowKey key{segment.home, row};
        const bool padding = is_padding(step_plan_, grid_, key);
        hidden_[rank].keys.push_back(key);
        hidden_[rank].values.push_back({padding ? padding_value(rank, key) : embedding(key, options_.seed)});
      }
}

void Ranks::run_stage(const Stage& stage, const Signature& signature) {
  if (stage.kind == StageKind::kExperts) {
    if (!dispatched_over_) throw Misstep("the experts are reached without a dispatch");
    compute_experts(stage.layer);
    const AxisSet owes = signature.gives.axes_with(Placement::kPartial, grid_);
    shared_ = hidden_;
    for (int rank = 0; rank < grid_.num_ranks(); ++rank)
      for (auto& value : shared_[rank].values)
        value[0] =
            addend(shared_expert(stage.layer, value[0]), grid_.index_in_group(rank, owes), grid_.size(owes));
    hidden_layout_ = signature.needs;  // until combine
    return;
  }
  const AxisSet split = signature.gives.axes_with(
      stage.kind == StageKind::kHead ? Placement::kColumns : Placement::kPartial, grid_);
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    uint64_t state = 0;
    Held& held = hidden_[rank];
    for (size_t i = 0; i < held.keys.size(); ++i) {
      uint64_t& x = held.values[i][0];
      const int index = grid_.index_in_group(rank, split), size = grid_.size(split);
      if (is_padding(step_plan_, grid_, held.keys[i])) {
        x = padding_value(rank, held.keys[i]);
      } else if (stage.kind == StageKind::kAttention) {
        state = attention_state(state, x);
        x = addend(attention(stage.layer, state), index, size);
      } else if (stage.kind == StageKind::kDense) {
        x = addend(dense(stage.layer, x), index, size);
      } else {
        x = head_column(x, index);
      }
    }
  }
  hidden_layout_ = signature.gives;
}

void Ranks::run_step(const Step& step, size_t edge) {
  Layout& layout = step.value == Value::kHidden ? hidden_layout_ : residual_layout_;
  const bool joins =
      step.kind == StepKind::kSeed || step.kind == StepKind::kNorm;  // takes the other value's layout
  if (!joins && step.kind != StepKind::kCombine && step.before != layout)
    throw Misstep(
        fmt::format("it takes {} but the value is {}", to_text(step.before, grid_), to_text(layout, grid_)));
  switch (step.kind) {
    case StepKind::kAllReduce:
      all_reduce(of(step.value), step.over);
      break;
    case StepKind::kReduceScatter:
      all_reduce(of(step.value), step.over);
      keep_home(of(step.value), step.over);
      break;
    case StepKind::kAllGather:
      all_gather(of(step.value), step.over);
      break;
    case StepKind::kSlice:
      keep_home(of(step.value), step.over);
      break;
    case StepKind::kSeed:
      if (has_residual_) throw Misstep("the residual is seeded a second time");
      residual_ = hidden_;
      residual_layout_ = hidden_layout_;
      has_residual_ = true;
      break;
    case StepKind::kAdd:
      add();
      break;
    case StepKind::kNorm:
      norm_rows(edge);
      break;
    case StepKind::kSelect:
      select();
      break;
    case StepKind::kDispatch:
      dispatch(step.over);
      break;
    case StepKind::kCombine:
      if (dispatched_over_ && *dispatched_over_ != step.over)
        throw Misstep(fmt::format("it combines over {} what was dispatched over {}", grid_.name_of(step.over),
                                  grid_.name_of(*dispatched_over_)));
      combine();
      break;
    case StepKind::kColumnsToRows:
      columns_to_rows(step.over);
      break;
    case StepKind::kFusedAllReduceAddNorm:
      all_reduce(hidden_, step.over);
      hidden_layout_ = step.after;
      add();
      norm_rows(edge);
      break;
  }
  (step.value == Value::kHidden ? hidden_layout_ : residual_layout_) = step.after;
}

void Ranks::finish_edge(const Edge& edge) const {
  if (dispatched_over_ && edge.to.kind != StageKind::kExperts)
    throw Misstep("rows were dispatched to experts and never combined");
}

void Ranks::all_reduce(std::vector<Held>& value, AxisSet over) {
  const std::vector<Held> before = value;
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    for (auto& sum : value[rank].values) sum.assign(sum.size(), 0);
    for (const int member : grid_.group(rank, over)) {
      if (before[member].keys != before[rank].keys)
        throw Misstep(fmt::format("ranks {} and {} would sum {} and {} rows that are not the same", rank,
                                  member, before[rank].keys.size(), before[member].keys.size()));
      for (size_t i = 0; i < value[rank].values.size(); ++i)
        for (size_t c = 0; c < value[rank].values[i].size(); ++c)
          value[rank].values[i][c] += before[member].values[i][c];
    }
  }
}

void Ranks::all_gather(std::vector<Held>& value, AxisSet over) {
  const std::vector<Held> before = value;
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    std::map<RowKey, std::vector<uint64_t>> rows;
    for (const int member : grid_.group(rank, over))
      for (size_t i = 0; i < before[member].keys.size(); ++i)
        if (!rows.emplace(before[member].keys[i], before[member].values[i]).second)
          throw Misstep(fmt::format("row {} of home {} arrives twice at rank {}", before[member].keys[i].row,
                                    before[member].keys[i].home, rank));
    value[rank] = {};
    for (auto& [key, row] : rows) {
      value[rank].keys.push_back(key);
      value[rank].values.push_back(row);
    }
  }
}

void Ranks::keep_home(std::vector<Held>& value, AxisSet over) {
  for (int rank = 0; rank < grid_.num_ranks(); ++rank)
    keep_if(value[rank], [&](RowKey key) { return at_home(grid_, rank, key.home, over); });
}

void Ranks::add() {
  if (!has_residual_) throw Misstep("there is no residual to add to");
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    if (hidden_[rank].keys != residual_[rank].keys)
      throw Misstep(fmt::format("rank {} would add {} hidden rows to {} residual rows that are not the same",
                                rank, hidden_[rank].keys.size(), residual_[rank].keys.size()));
    for (size_t i = 0; i < hidden_[rank].values.size(); ++i)
      residual_[rank].values[i][0] += hidden_[rank].values[i][0];
  }
}

void Ranks::norm_rows(size_t edge) {
  if (!has_residual_) throw Misstep("there is no residual to norm");
  hidden_ = residual_;
  for (Held& held : hidden_)
    for (auto& value : held.values) value[0] = norm(edge, value[0]);
  hidden_layout_ = residual_layout_;
}

void Ranks::select() {
  for (int rank = 0; rank < grid_.num_ranks(); ++rank)
    for (Held* held : {&hidden_[rank], &residual_[rank]})
      keep_if(*held, [&](RowKey key) { return is_wanted(step_plan_, grid_, key); });
}

void Ranks::dispatch(AxisSet over) {
  if (dispatched_over_) throw Misstep("a second dispatch before the combine of the first");
  dispatched_over_ = over;
  slots_.assign(grid_.num_ranks(), {});
}

void Ranks::compute_experts(int layer) {
  const AxisSet parallel = grid_.expert_parallel();
  const int owners = grid_.size(parallel);
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    const std::vector<int> reachable = grid_.group(rank, *dispatched_over_);
    for (size_t i = 0; i < hidden_[rank].keys.size(); ++i) {
      const RowKey key = hidden_[rank].keys[i];
      if (is_padding(step_plan_, grid_, key)) continue;
      for (const Route& route : routes(layer, hidden_[rank].values[i][0], options_)) {
        const int owner = route.expert * owners / options_.num_experts;
        for (const int member : reachable)
          if (grid_.index_in_group(member, parallel) == owner)
            slots_[member].push_back({rank, i, key, route, hidden_[rank].values[i][0]});
      }
    }
  }
  std::map<std::tuple<RowKey, int, int>, int> computed;  // (row, expert, slice of the expert) -> times
  for (int rank = 0; rank < grid_.num_ranks(); ++rank)
    for (Slot& slot : slots_[rank]) {
      const int slice = grid_.index_in_group(rank, grid_.expert_tp());
      if (++computed[{slot.key, slot.route.expert, slice}] > 1)
        throw Misstep(fmt::format("expert {} is computed twice for row {} of home {}", slot.route.expert,
                                  slot.key.row, slot.key.home));
      slot.value = addend(expert(layer, slot.route.expert, slot.value), slice, grid_.size(grid_.expert_tp()));
    }
}

void Ranks::combine() {
  if (!dispatched_over_) throw Misstep("a combine without a dispatch");
  for (Held& held : hidden_)
    for (auto& value : held.values) value[0] = 0;
  for (const auto& slots : slots_)
    for (const Slot& slot : slots)
      hidden_[slot.source].values[slot.position][0] += slot.route.weight * slot.value;
  for (int rank = 0; rank < grid_.num_ranks(); ++rank)
    for (size_t i = 0; i < hidden_[rank].values.size(); ++i)
      hidden_[rank].values[i][0] += shared_[rank].values[i][0];
  dispatched_over_.reset();
}

void Ranks::columns_to_rows(AxisSet over) {
  const std::vector<Held> before = hidden_;
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    for (auto& value : hidden_[rank].values) value.clear();
    for (const int member : grid_.group(rank, over)) {
      if (before[member].keys != before[rank].keys)
        throw Misstep(fmt::format("ranks {} and {} would join columns of different rows", rank, member));
      for (size_t i = 0; i < before[member].values.size(); ++i)
        for (const uint64_t column : before[member].values[i]) hidden_[rank].values[i].push_back(column);
    }
  }
  keep_home(hidden_, over);
}

}  // namespace lockstep::planning::symbolic
