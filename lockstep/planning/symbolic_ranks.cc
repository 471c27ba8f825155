#include "lockstep/planning/symbolic_ranks.h"

#include <algorithm>

#include "lockstep/base/split.h"

namespace lockstep::planning::symbolic {
namespace {

constexpr uint64_t kPadding = 0xbadbadbadULL;

bool at_home(const RankGrid& grid, int rank, int home, AxisSet over) {
  for (int axis = 0; axis < grid.num_axes(); ++axis)
    if (over.has(axis) && grid.coord(rank, axis) != grid.coord(home, axis)) return false;
  return true;
}

void keep_if(Held& held, const auto& keeps) {
  size_t kept = 0;
  for (size_t i = 0; i < held.rows.size(); ++i) {
    if (!keeps(held.rows[i])) continue;
    held.rows[kept] = held.rows[i];
    for (size_t c = 0; c < held.width; ++c)
      held.values[kept * held.width + c] = held.values[i * held.width + c];
    ++kept;
  }
  held.rows.resize(kept);
  held.values.resize(kept * held.width);
}

}  // namespace

Ranks::Ranks(const RankGrid& grid, const RowTable& table, const VerifierOptions& options)
    : grid_(grid), table_(table), options_(options), hidden_(grid.num_ranks()), residual_(grid.num_ranks()) {}

// Padding holds other garbage on every rank: whoever lets it flow into a real row is found out.
uint64_t Ranks::padding_value(int rank, RowId row) const { return mix(kPadding + rank, row); }

const std::vector<std::vector<int>>& Ranks::groups(AxisSet over) {
  auto& found = groups_[over];
  if (!found.empty()) return found;
  for (int rank = 0; rank < grid_.num_ranks(); ++rank)
    if (grid_.index_in_group(rank, over) == 0) found.push_back(grid_.group(rank, over));
  return found;
}

const std::vector<RowId>& Ranks::rows_of(const Layout& layout, int rank, RowSet set) {
  const AxisSet sharded = layout.axes_with(Placement::kShard, grid_);
  auto& rows = rows_[{sharded, set}];
  if (rows.empty()) {
    rows.resize(grid_.num_ranks());
    for (int holder = 0; holder < grid_.num_ranks(); ++holder)
      for (int home = 0; home < grid_.num_ranks(); ++home) {
        if (!at_home(grid_, holder, home, sharded)) continue;
        for (RowId row = table_.first_of_home[home]; row < table_.first_of_home[home + 1]; ++row)
          if (set == RowSet::kAll || table_.rows[row].wanted) rows[holder].push_back(row);
      }
  }
  return rows[rank];
}

// ---- stages ----------------------------------------------------------------------------------------------

void Ranks::embed(const Signature& signature) {
  hidden_layout_ = signature.gives;
  const AxisSet split = signature.gives.axes_with(Placement::kPartial, grid_);
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    Held& held = hidden_[rank];
    held.rows = rows_of(signature.gives, rank, RowSet::kAll);
    const int index = grid_.index_in_group(rank, split), size = grid_.size(split);
    for (const RowId row : held.rows)
      held.values.push_back(table_.rows[row].padding ? padding_value(rank, row)
                                                     : addend(embedding(row, options_.seed), index, size));
  }
}

void Ranks::run_stage(const Stage& stage, const Signature& signature) {
  phase_ = Phase::kGiven;
  if (stage.kind == StageKind::kExperts) {
    compute_experts(stage.layer);
    compute_shared(stage.layer, signature);
    return;  // its output exists once it is combined
  }
  if (stage.kind == StageKind::kTap) {  // what it hands on is normed
    phase_ = Phase::kNormed;
    return;
  }
  if (stage.kind == StageKind::kJoin) has_residual_ = false;  // the draft's layers begin with its output
  const bool is_head = stage.kind == StageKind::kHead;
  const AxisSet split = signature.gives.axes_with(is_head ? Placement::kColumns : Placement::kPartial, grid_);
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    const int index = grid_.index_in_group(rank, split), size = grid_.size(split);
    uint64_t state = 0;
    Held& held = hidden_[rank];
    const bool looks_back = stage.kind == StageKind::kAttention && !table_.stands_in_order;
    const auto order = looks_back ? table_.in_order(held.rows) : std::vector<size_t>();
    for (size_t at = 0; at < held.rows.size(); ++at) {
      const size_t i = looks_back ? order[at] : at;
      uint64_t& x = held.values[i];
      if (table_.rows[held.rows[i]].padding) {
        x = padding_value(rank, held.rows[i]);
      } else if (stage.kind == StageKind::kAttention) {
        state = attention_state(state, x);
        x = addend(attention(stage.layer, state), index, size);
      } else if (stage.kind == StageKind::kLatents) {
        x = latents(stage.layer, x);
      } else if (stage.kind == StageKind::kDense) {
        x = addend(dense(stage.layer, x), index, size);
      } else if (stage.kind == StageKind::kJoin) {
        x = addend(join(x, kept(held.rows[i], options_.seed)), index, size);
      } else {
        x = head_column(x, index);
      }
    }
  }
  // Of the rows that it saw, attention may give a share only.
  const AxisSet shared_out = signature.gives.axes_with(Placement::kShard, grid_) -
                             signature.needs.axes_with(Placement::kShard, grid_);
  if (!shared_out.empty()) keep_home(hidden_, shared_out);
  hidden_layout_ = signature.gives;
  if (stage.kind == StageKind::kLatents) phase_ = Phase::kNormed;  // of rows that were normed
}

void Ranks::compute_shared(int layer, const Signature& signature) {
  const AxisSet owes = signature.gives.axes_with(Placement::kPartial, grid_);
  shared_ = hidden_;
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    Held& held = shared_[rank];
    for (size_t i = 0; i < held.rows.size(); ++i) {
      const uint64_t whole = shared_expert(layer, held.values[i]);
      switch (signature.shared) {
        case SharedExpert::kSplit:
          held.values[i] = addend(whole, grid_.index_in_group(rank, owes), grid_.size(owes));
          break;
        case SharedExpert::kAtHome:
          held.values[i] = at_home(grid_, rank, table_.rows[held.rows[i]].home, owes) ? whole : 0;
          break;
        case SharedExpert::kEveryRank:
          held.values[i] = whole;
          break;
      }
    }
  }
}

void Ranks::compute_experts(int layer) {
  const int experts = num_experts(grid_, options_), slices = grid_.size(grid_.expert_tp());
  const int copies = grid_.size(grid_.expert_copies());
  // How often each (row, slice of an expert) was computed, for the ranks of each copy of the experts.
  std::vector<uint8_t> computed(table_.rows.size() * experts * slices * copies);
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    const int slice = grid_.index_in_group(rank, grid_.expert_tp());
    for (Slot& slot : slots_[rank]) {
      const RowId row = hidden_[slot.source].rows[slot.position];
      const int copy = grid_.index_in_group(slot.source, grid_.expert_copies());
      const size_t pair = static_cast<size_t>(row) * experts + slot.route.expert;
      uint8_t& times = computed[(pair * slices + slice) * copies + copy];
      if (++times > 1)
        throw Misstep(
            fmt::format("expert {} is computed twice for {}", slot.route.expert, table_.name_of(row)), rank);
      // Numbers of the owner's own experts, taken for numbers of all, are those of other experts.
      int which = slot.route.expert;
      if (ids_ == ExpertIds::kLocal)
        which -= static_cast<int>(split_range(experts, grid_.size(grid_.expert_parallel()),
                                              grid_.index_in_group(rank, grid_.expert_parallel()))
                                      .begin);
      slot.value = addend(expert(layer, which, slot.value), slice, slices);
    }
  }
  is_computed_ = true;
}

// ---- steps -----------------------------------------------------------------------------------------------

void Ranks::execute(const Step& step, const EdgeContext& edge) {
  switch (step.kind) {
    case StepKind::kAllReduce:
      return all_reduce(of(step.value), step.over);
    case StepKind::kReduceScatter:
      all_reduce(of(step.value), step.over);
      return keep_home(of(step.value), step.over);
    case StepKind::kAllGather:
      return all_gather(of(step.value), step.over);
    case StepKind::kSlice:
      return keep_home(of(step.value), step.over);
    case StepKind::kSeed:
      return seed();
    case StepKind::kAdd:
      return add();
    case StepKind::kNorm:
      return norm_rows(edge.index);
    case StepKind::kSelect:
      return select();
    case StepKind::kDispatch:
      return dispatch(step.over, edge);
    case StepKind::kCombine:
      return combine(step.over);
    case StepKind::kColumnsToRows:
      return columns_to_rows(step.over);
    case StepKind::kFusedAllReduceAddNorm:
      all_reduce(hidden_, step.over);
      add();
      return norm_rows(edge.index);
    case StepKind::kFusedScatterAddNormGather:
      all_reduce(hidden_, step.over);
      keep_home(hidden_, step.over);
      add();
      norm_rows(edge.index);
      return all_gather(hidden_, step.over);
    case StepKind::kFusedCombineAdd:
      combine(step.over);
      return add();
  }
}

void Ranks::run_step(const Step& step, const EdgeContext& edge) {
  const bool only_residual =
      step.value == Value::kResidual && (step.kind == StepKind::kSlice || step.kind == StepKind::kAllGather);
  const bool combines = step.kind == StepKind::kCombine || step.kind == StepKind::kFusedCombineAdd;
  if (dispatched_over_ && !only_residual && !combines)
    throw Misstep("hidden is at the experts: it was dispatched and is not yet combined");
  if (checks_claims()) check_claims_before(step, edge);
  const Layout before = layout_of(step.value);
  execute(step, edge);
  if (checks_claims()) check_claims_after(step, before, edge);
}

void Ranks::finish_edge(const EdgeContext& edge) const {
  const bool to_experts = edge.to.kind == StageKind::kExperts;
  if (to_experts && !dispatched_over_) throw Misstep("the experts are reached without a dispatch");
  if (!to_experts && dispatched_over_) throw Misstep("rows were dispatched to experts and never combined");
  if (checks_claims() && edge.to.kind != StageKind::kSampler && phase_ != Phase::kNormed)
    throw Misstep("the edge ends before hidden is added to the residual and normed");
}

void Ranks::all_reduce(std::vector<Held>& value, AxisSet over) {
  for (const std::vector<int>& group : groups(over)) {
    Held sum = value[group[0]];
    for (const int member : group) {
      if (member == group[0]) continue;
      const Held& other = value[member];
      if (other.rows != sum.rows || other.width != sum.width)
        throw Misstep(fmt::format("ranks {} and {} would sum {} and {} rows that are not the same", group[0],
                                  member, sum.rows.size(), other.rows.size()),
                      member);
      for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += other.values[i];
    }
    for (const int member : group) value[member] = sum;
  }
}

// Backends that exchange blocks of one size need every member to bring as many rows.
void Ranks::check_contract(const std::vector<Held>& value, AxisSet over) {
  for (const std::vector<int>& group : groups(over))
    for (const int member : group) {
      const size_t rows = value[member].rows.size(), first = value[group[0]].rows.size();
      if (options_.rows == VerifierOptions::Rows::kEqualPerRank && rows != first)
        throw Misstep(fmt::format("the backend needs equal rows, rank {} brings {} and rank {} brings {}",
                                  group[0], first, member, rows),
                      member);
      if (options_.zero_rows == VerifierOptions::ZeroRows::kRefused && rows == 0)
        throw Misstep(fmt::format("the backend takes no empty part, rank {} brings 0 rows", member), member);
    }
}

void Ranks::all_gather(std::vector<Held>& value, AxisSet over) {
  check_contract(value, over);
  struct Piece {
    RowId row;
    int member;
    size_t position;
  };
  std::vector<Piece> pieces;
  for (const std::vector<int>& group : groups(over)) {
    pieces.clear();
    for (const int member : group)
      for (size_t i = 0; i < value[member].rows.size(); ++i)
        pieces.push_back({value[member].rows[i], member, i});
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.row < b.row; });
    Held all{.rows = {}, .values = {}, .width = value[group[0]].width};
    for (const Piece& piece : pieces) {
      if (!all.rows.empty() && all.rows.back() == piece.row)
        throw Misstep(fmt::format("{} arrives twice at rank {}", table_.name_of(piece.row), group[0]),
                      group[0]);
      all.rows.push_back(piece.row);
      const auto first =
          value[piece.member].values.begin() + static_cast<std::ptrdiff_t>(piece.position * all.width);
      all.values.insert(all.values.end(), first, first + static_cast<std::ptrdiff_t>(all.width));
    }
    for (const int member : group) value[member] = all;
  }
}

void Ranks::keep_home(std::vector<Held>& value, AxisSet over) {
  for (int rank = 0; rank < grid_.num_ranks(); ++rank)
    keep_if(value[rank], [&](RowId row) { return at_home(grid_, rank, table_.rows[row].home, over); });
}

void Ranks::columns_to_rows(AxisSet over) {
  for (const std::vector<int>& group : groups(over)) {
    Held joined{.rows = hidden_[group[0]].rows, .values = {}, .width = 0};
    for (const int member : group) {
      if (hidden_[member].rows != joined.rows)
        throw Misstep(fmt::format("ranks {} and {} would join columns of different rows", group[0], member),
                      member);
      joined.width += hidden_[member].width;
    }
    for (size_t i = 0; i < joined.rows.size(); ++i)
      for (const int member : group) {
        const Held& part = hidden_[member];
        for (size_t c = 0; c < part.width; ++c) joined.values.push_back(part.values[i * part.width + c]);
      }
    for (const int member : group) hidden_[member] = joined;
  }
  keep_home(hidden_, over);
}

void Ranks::seed() {
  if (has_residual_) throw Misstep("the residual is seeded a second time");
  residual_ = hidden_;
  has_residual_ = true;
}

void Ranks::add() {
  if (!has_residual_) throw Misstep("there is no residual to add to");
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    const Held& hidden = hidden_[rank];
    if (hidden.rows != residual_[rank].rows || hidden.width != residual_[rank].width)
      throw Misstep(fmt::format("rank {} would add {} hidden rows to {} residual rows that are not the same",
                                rank, hidden.rows.size(), residual_[rank].rows.size()),
                    rank);
    for (size_t i = 0; i < hidden.values.size(); ++i) residual_[rank].values[i] += hidden.values[i];
  }
}

void Ranks::norm_rows(size_t edge) {
  if (!has_residual_) throw Misstep("there is no residual to norm");
  hidden_ = residual_;
  for (Held& held : hidden_)
    for (uint64_t& value : held.values) value = norm(edge, value);
}

void Ranks::select() {
  for (int rank = 0; rank < grid_.num_ranks(); ++rank)
    for (Held* held : {&hidden_[rank], &residual_[rank]})
      keep_if(*held, [&](RowId row) { return table_.rows[row].wanted; });
  row_set_ = RowSet::kWanted;
}

// Whom the router takes for padding must be padding, and nobody else.
void Ranks::check_routed(int rank, size_t position, RouterMask mask) const {
  const Held& held = hidden_[rank];
  if (mask == RouterMask::kByRow) return;
  size_t num_real = held.rows.size();
  if (mask == RouterMask::kByCount)
    num_real = static_cast<size_t>(std::count_if(held.rows.begin(), held.rows.end(),
                                                 [&](RowId row) { return !table_.rows[row].padding; }));
  const bool is_padding = table_.rows[held.rows[position]].padding;
  const std::string name = table_.name_of(held.rows[position]);
  if (is_padding && position < num_real)
    throw Misstep(fmt::format("padding is routed: {}, place {} of {} on rank {}", name, position,
                              held.rows.size(), rank),
                  rank);
  if (!is_padding && position >= num_real)
    throw Misstep(fmt::format("a row is taken for padding: {}, place {} of {} on rank {}", name, position,
                              held.rows.size(), rank),
                  rank);
}

// Does what a rank sends another fit into the slots that both computed from the same table?
void Ranks::check_slots(AxisSet over) const {
  const AxisSet sharded = hidden_layout_.axes_with(Placement::kShard, grid_);
  const int64_t homes = grid_.num_ranks() / grid_.size(sharded);
  const int64_t most =
      options_.slots_of_pair > 0 ? options_.slots_of_pair : homes * table_.max_rows_of_any_home;
  if (over.empty() || !checks_claims()) return;
  for (int member = 0; member < grid_.num_ranks(); ++member) {
    std::map<int, std::pair<size_t, int64_t>> sent;  // by source: its last row that was counted, how many
    for (const Slot& slot : slots_[member]) {
      auto [at, is_first] = sent.try_emplace(slot.source, slot.position, 1);
      if (!is_first && at->second.first != slot.position) at->second = {slot.position, at->second.second + 1};
      if (at->second.second > most)
        throw Misstep(fmt::format("rank {} sends rank {} more than the {} rows that a pair has slots for",
                                  slot.source, member, most),
                      member);
    }
  }
}

void Ranks::dispatch(AxisSet over, const EdgeContext& edge) {
  if (edge.to.kind != StageKind::kExperts)
    throw Misstep(
        fmt::format("it dispatches rows, but the edge leads to {}", planning::name_of(edge.to.kind)));
  dispatched_over_ = over;
  ids_ = edge.takes.ids;
  slots_.assign(grid_.num_ranks(), {});
  const AxisSet parallel = grid_.expert_parallel();
  const int owners = grid_.size(parallel), experts = num_experts(grid_, options_);
  std::vector<Route> chosen;
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    const std::vector<int> reachable = grid_.group(rank, over);
    for (size_t i = 0; i < hidden_[rank].rows.size(); ++i) {
      check_routed(rank, i, edge.takes.mask);
      if (table_.rows[hidden_[rank].rows[i]].padding) continue;
      routes(edge.to.layer, hidden_[rank].values[i], experts, options_, chosen);
      for (const Route& route : chosen)
        for (const int member : reachable)
          if (grid_.index_in_group(member, parallel) == owner_of(experts, owners, route.expert))
            slots_[member].push_back({rank, i, route, hidden_[rank].values[i]});
    }
  }
  check_slots(over);
}

void Ranks::combine(AxisSet over) {
  if (!dispatched_over_) throw Misstep("a combine without a dispatch");
  if (!is_computed_) throw Misstep("a combine before the experts computed anything");
  if (*dispatched_over_ != over)
    throw Misstep(fmt::format("it combines over {} what was dispatched over {}", grid_.name_of(over),
                              grid_.name_of(*dispatched_over_)));
  hidden_ = shared_;
  for (const auto& slots : slots_)
    for (const Slot& slot : slots)
      hidden_[slot.source].values[slot.position] += slot.route.weight * slot.value;
  dispatched_over_.reset();
  is_computed_ = false;
}

}  // namespace lockstep::planning::symbolic
