#include "lockstep/collectives/boundary.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::collectives {

using planning::Layout;
using planning::Segment;
using planning::Step;
using planning::StepKind;
using planning::Value;

namespace {

std::map<int, Segment> by_home(const std::vector<Segment>& segments) {
  std::map<int, Segment> found;
  for (const Segment& segment : segments) found[segment.home] = segment;
  return found;
}

bool combines(const Step& step) {
  return step.kind == StepKind::kCombine || step.kind == StepKind::kFusedCombineAdd;
}

bool row_is_finite(const TensorView& x, int64_t row) {
  const float* values = x.as<float>() + row * x.stride[0];
  return std::all_of(values, values + x.cols(), [](float value) { return std::isfinite(value); });
}

}  // namespace

Boundary::Boundary(const Parts& parts)
    : parts_(parts),
      hidden_buffers_{Buffer(parts.kernels.memory()), Buffer(parts.kernels.memory())},
      residual_buffers_{Buffer(parts.kernels.memory()), Buffer(parts.kernels.memory())},
      combined_(parts.kernels.memory()),
      normed_(parts.kernels.memory()),
      dispatched_(std::make_unique<Dispatched>(parts.kernels.memory())) {
  for (const planning::Regime regime : planning::kRegimes) {
    const planning::Plan* plan = &parts.plans.of(regime);
    auto& names = names_[plan];
    auto& stages = stages_[plan];
    stages.push_back("computes " + planning::to_text(plan->edges.front().from));
    for (const planning::Edge& edge : plan->edges) {
      stages.push_back("computes " + planning::to_text(edge.to));
      for (const Step& step : edge.steps)
        names.push_back(fmt::format("{} on the edge {} -> {}", name_of(step.kind),
                                    planning::to_text(edge.from), planning::to_text(edge.to)));
    }
  }
}

Boundary::~Boundary() = default;

void Boundary::begin(const planning::StepPlan& step_plan) {
#ifndef NDEBUG
  // Whoever changed a field after the plan was made changed it for one rank only.
  LOCKSTEP_CHECK_EQ(step_plan.hash, planning::hash_of(step_plan));
#endif
  step_plan_ = &step_plan;
  plan_ = &parts_.plans.of(step_plan.regime);
  edge_ = 0;
  done_steps_ = 0;
  row_set_ = RowSet::kAll;
  layout_ = plan_->edges.front().given;
  hidden_ = residual_ = {};
  waiting_.reset();
  non_finite_.clear();
  refresh_valid();
  note_stage();
}

std::span<const int32_t> Boundary::counts() const {
  return row_set_ == RowSet::kAll ? step_plan_->rows_per_home : step_plan_->logit_rows_per_home;
}

void Boundary::refresh_valid() {
  valid_.clear();
  const int32_t width = parts_.plans.grid.shape().attention_tp;
  for (const Segment& segment : planning::segments_of(layout_, parts_.rank, parts_.plans.grid, counts())) {
    const int64_t first = segment.home % width * segment.num_rows;
    const auto replica = static_cast<size_t>(parts_.plans.grid.replica_of(segment.home));
    const int64_t real = planning::num_rows(step_plan_->counts[replica], step_plan_->forward);
    for (int64_t row = 0; row < segment.num_rows; ++row)
      valid_.push_back(row_set_ == RowSet::kWanted || first + row < real ? 1 : 0);
  }
}

std::vector<int32_t> Boundary::held(std::span<const int32_t> values) const {
  std::vector<int64_t> starts = {0};
  for (const int32_t rows : step_plan_->rows_per_home) starts.push_back(starts.back() + rows);
  LOCKSTEP_CHECK_EQ(static_cast<int64_t>(values.size()), starts.back());
  std::vector<int32_t> mine;
  for (const Segment& segment : planning::segments_of(layout_, parts_.rank, parts_.plans.grid, counts())) {
    const auto from = values.begin() + starts[static_cast<size_t>(segment.home)];
    mine.insert(mine.end(), from, from + segment.num_rows);
  }
  return mine;
}

const planning::Edge& Boundary::next_edge(planning::StageRef stage) {
  LOCKSTEP_CHECK_LT(edge_, plan_->edges.size());
  const planning::Edge& edge = plan_->edges[edge_];
  LOCKSTEP_CHECK(edge.to == stage, "the model enters {}, the plan goes on with {}", planning::to_text(stage),
                 planning::to_text(edge.to));
  return edge;
}

Rows Boundary::enter(planning::StageRef stage, TensorView given, const NormWeights& norm) {
  const planning::Edge& edge = next_edge(stage);
  hidden_ = given;
  layout_ = edge.given;
  norm_ = norm;
  for (size_t at = done_steps_; at < edge.steps.size(); ++at) {
    if (adds_then_norms(edge, at)) {
      if (waiting_) {
        combine_add_norm(edge, at);
      } else {
        add_and_norm(edge.steps[at], edge.steps[at + 1]);
      }
      ++at;
    } else if (edge.steps[at].kind != StepKind::kDispatch) {
      run_step(edge.steps[at]);
    }
  }
  LOCKSTEP_CHECK(layout_ == edge.needed, "the edge into {} ends as {}, needed is {}",
                 planning::to_text(stage), planning::to_text(layout_, parts_.plans.grid),
                 planning::to_text(edge.needed, parts_.plans.grid));
  const Layout& gives = given_next(edge);
  ++edge_;
  done_steps_ = 0;
  refresh_valid();
  LOCKSTEP_CHECK_EQ(hidden_.rows(), num_rows());
  refresh_own(gives);
  note_stage();
  return {hidden_, valid_, own_, given_rows(gives)};
}

// What the stage behind `edge`, the next to cross, gives.
const Layout& Boundary::given_next(const planning::Edge& edge) const {
  return edge_ + 1 < plan_->edges.size() ? plan_->edges[edge_ + 1].given : edge.needed;
}

Segment Boundary::given_rows(const Layout& gives) const {
  const auto& grid = parts_.plans.grid;
  const Layout kept =
      layout_.with(gives.axes_with(planning::Placement::kShard, grid), planning::Placement::kShard);
  const auto held = by_home(planning::segments_of(layout_, parts_.rank, grid, counts()));
  Segment rows;
  for (const Segment& segment : planning::segments_of(kept, parts_.rank, grid, counts())) {
    const Segment& mine = held.at(segment.home);
    if (rows.num_rows == 0)
      rows = mine;
    else
      rows.num_rows += mine.num_rows;
  }
  // Axes that a stage shares out are the slowest of a replica, so the rows stand together.
  LOCKSTEP_CHECK_LE(rows.first_row + rows.num_rows, num_rows());
  return rows;
}

void Boundary::refresh_own(const Layout& gives) {
  const auto& grid = parts_.plans.grid;
  const Layout at_home =
      layout_.with(gives.axes_with(planning::Placement::kPartial, grid), planning::Placement::kShard);
  const auto held = by_home(planning::segments_of(layout_, parts_.rank, grid, counts()));
  own_.clear();
  for (const Segment& segment : planning::segments_of(at_home, parts_.rank, grid, counts())) {
    const Segment& mine = held.at(segment.home);
    if (mine.num_rows == 0) continue;
    const bool joins = !own_.empty() && own_.back().first_row + own_.back().num_rows == mine.first_row;
    if (joins) own_.back().num_rows += mine.num_rows;
    if (!joins) own_.push_back(mine);
  }
}

TensorView Boundary::enter_sampler(TensorView logits_columns, int64_t vocab) {
  const planning::Edge& edge = next_edge(plan_->edges.back().to);
  hidden_ = logits_columns;
  layout_ = edge.given;
  for (const Step& step : edge.steps) {
    LOCKSTEP_CHECK(step.kind == StepKind::kColumnsToRows, "step {} ({}) before the sampler", step.id,
                   name_of(step.kind));
    const auto keeps = kept_rows(step);
    const int64_t rows = planning::num_rows_of(step.after, parts_.rank, parts_.plans.grid, counts());
    const TensorView out = fresh(Value::kHidden, rows, vocab);
    parts_.communicator.columns_to_rows({.in = hidden_, .out = out, .keeps = keeps}, step.over, tag_of(step));
    hidden_ = out;
    layout_ = step.after;
  }
  ++edge_;
  note_stage();
  LOCKSTEP_CHECK_EQ(hidden_.cols(), vocab);
  return hidden_;
}

void Boundary::note(const std::string& what) {
  if (doing_.load(std::memory_order_relaxed) == &what) return;
  doing_.store(&what, std::memory_order_relaxed);
  if (parts_.marks != nullptr) parts_.marks->push_back({&what, std::chrono::steady_clock::now()});
}

Tag Boundary::tag_of(const Step& step) {
  const std::string& name = names_.at(plan_)[step.id];
  note(name);
  return {step_plan_->step, step.id, name};
}

TensorView Boundary::fresh(Value value, int64_t rows, int64_t cols) {
  auto& buffers = value == Value::kHidden ? hidden_buffers_ : residual_buffers_;
  int& next = next_buffer_[static_cast<size_t>(value)];
  Buffer& buffer = buffers[static_cast<size_t>(next)];
  next = 1 - next;
  return buffer.view({rows, cols});
}

void Boundary::copy_rows(const TensorView& from, std::span<const RowPiece> pieces, const TensorView& to) {
  parts_.kernels.copy_rows({.sources = {&from, 1}, .pieces = pieces, .out = to});
}

void Boundary::run_step(const Step& step) {
  note(names_.at(plan_)[step.id]);
  switch (step.kind) {
    case StepKind::kAllReduce:
      all_reduce(step);
      break;
    case StepKind::kReduceScatter:
      reduce_scatter(step);
      break;
    case StepKind::kAllGather:
      all_gather(step);
      break;
    case StepKind::kSlice:
      slice(step);
      break;
    case StepKind::kSelect:
      select();
      break;
    case StepKind::kNorm:
      norm(step);
      break;
    case StepKind::kFusedAllReduceAddNorm:
      fused(step);
      break;
    case StepKind::kFusedScatterAddNormGather:
      fused_scatter(step);
      break;
    case StepKind::kSeed: {
      residual_ = fresh(Value::kResidual, hidden_.rows(), hidden_.cols());
      const RowPiece all{.num_rows = hidden_.rows()};
      copy_rows(hidden_, {&all, 1}, residual_);
      break;
    }
    case StepKind::kAdd:
      parts_.kernels.add({.x = residual_, .y = hidden_});
      break;
    case StepKind::kCombine:
    case StepKind::kFusedCombineAdd:
    case StepKind::kDispatch:
    case StepKind::kColumnsToRows:
      LOCKSTEP_CHECK(false, "step {} ({}) is not run by enter()", step.id, name_of(step.kind));
  }
  layout_of(step.value) = step.after;
}

void Boundary::all_reduce(const Step& step) {
  TensorView& value = of(step.value);
  const TensorView out = fresh(step.value, value.rows(), value.cols());
  parts_.communicator.all_reduce({.in = value, .out = out}, step.over, tag_of(step));
  value = out;
}

// The rows of the value before the step that this rank still holds after it, in order.
std::vector<RowPiece> Boundary::kept_rows(const Step& step) const {
  const auto& grid = parts_.plans.grid;
  const auto before = by_home(planning::segments_of(step.before, parts_.rank, grid, counts()));
  std::vector<RowPiece> pieces;
  for (const Segment& after : planning::segments_of(step.after, parts_.rank, grid, counts()))
    pieces.push_back(
        {.src_row = before.at(after.home).first_row, .dst_row = after.first_row, .num_rows = after.num_rows});
  return pieces;
}

void Boundary::reduce_scatter(const Step& step) {
  TensorView& value = of(step.value);
  const int64_t rows = planning::num_rows_of(step.after, parts_.rank, parts_.plans.grid, counts());
  const TensorView out = fresh(step.value, rows, value.cols());
  const auto keeps = kept_rows(step);
  parts_.communicator.reduce_scatter({.in = value, .out = out, .keeps = keeps}, step.over, tag_of(step));
  value = out;
}

// Where the rows that `over` brings together come from: members hold them as `before`.
std::vector<RowPiece> Boundary::gathered_rows(const Step& step, const Layout& before) const {
  const auto& grid = parts_.plans.grid;
  std::map<int, RowPiece> source;  // by home
  const auto members = grid.group(parts_.rank, step.over);
  for (size_t member = 0; member < members.size(); ++member)
    for (const Segment& held : planning::segments_of(before, members[member], grid, counts()))
      source[held.home] = {.source = static_cast<int>(member), .src_row = held.first_row};
  std::vector<RowPiece> pieces;
  for (const Segment& after : planning::segments_of(step.after, parts_.rank, grid, counts())) {
    RowPiece piece = source.at(after.home);
    piece.dst_row = after.first_row;
    piece.num_rows = after.num_rows;
    pieces.push_back(piece);
  }
  return pieces;
}

void Boundary::all_gather(const Step& step) {
  const auto pieces = gathered_rows(step, step.before);
  const int64_t rows = planning::num_rows_of(step.after, parts_.rank, parts_.plans.grid, counts());
  TensorView& value = of(step.value);
  const TensorView out = fresh(step.value, rows, value.cols());
  parts_.communicator.all_gather({.in = value, .out = out, .pieces = pieces}, step.over, tag_of(step));
  value = out;
}

void Boundary::slice(const Step& step) {
  TensorView& value = of(step.value);
  const int64_t rows = planning::num_rows_of(step.after, parts_.rank, parts_.plans.grid, counts());
  const TensorView out = fresh(step.value, rows, value.cols());
  copy_rows(value, kept_rows(step), out);
  value = out;
}

// Hidden and residual may stand in different layouts here; each keeps its own homes' wanted rows.
void Boundary::select() {
  const auto& grid = parts_.plans.grid;
  const int32_t width = grid.shape().attention_tp;
  const auto keep = [&](Value which) {
    TensorView& value = of(which);
    const Layout& layout = layout_of(which);
    const int64_t rows = planning::num_rows_of(layout, parts_.rank, grid, step_plan_->logit_rows_per_home);
    const TensorView out = fresh(which, rows, value.cols());
    std::vector<RowPiece> pieces;
    for (const Segment& segment :
         planning::segments_of(layout, parts_.rank, grid, step_plan_->rows_per_home)) {
      const int64_t first = segment.home % width * segment.num_rows;
      const int replica = grid.replica_of(segment.home);
      for (const int32_t row : planning::wanted_by_place(*step_plan_, replica)) {
        const int64_t place = planning::place_of(*step_plan_, replica, row);
        if (place >= first && place < first + segment.num_rows)
          pieces.push_back({.src_row = segment.first_row + place - first,
                            .dst_row = static_cast<int64_t>(pieces.size()),
                            .num_rows = 1});
      }
    }
    LOCKSTEP_CHECK_EQ(static_cast<int64_t>(pieces.size()), rows);
    copy_rows(value, pieces, out);
    value = out;
  };
  keep(Value::kResidual);
  keep(Value::kHidden);
  row_set_ = RowSet::kWanted;
}

void Boundary::norm(const Step& step) {
  hidden_ = fresh(Value::kHidden, residual_.rows(), residual_.cols());
  kernels::RmsNormArgs args{.x = residual_, .weight = norm_.weight, .eps = norm_.eps, .out = hidden_};
  parts_.kernels.rms_norm(args);
  layout_ = step.after;
  if (args.first_non_finite_row >= 0) note_non_finite(args.first_non_finite_row);
}

void Boundary::fused(const Step& step) {
  const TensorView out = fresh(Value::kHidden, hidden_.rows(), hidden_.cols());
  FusedAllReduceAddNormArgs args{
      .in = hidden_, .residual = residual_, .weight = norm_.weight, .eps = norm_.eps, .out = out};
  parts_.communicator.fused_all_reduce_add_norm(args, parts_.kernels, step.over, tag_of(step));
  hidden_ = out;
  layout_ = step.after;
  if (args.first_non_finite_row >= 0) note_non_finite(args.first_non_finite_row);
}

// One op has the bits of both steps, wherever ranks compute: the host runs it as the two, a block of rows at
// a time, a GPU as one kernel. The plan says and counts two.
bool Boundary::adds_then_norms(const planning::Edge& edge, size_t at) {
  return at + 1 < edge.steps.size() && edge.steps[at].kind == StepKind::kAdd &&
         edge.steps[at + 1].kind == StepKind::kNorm;
}

void Boundary::add_and_norm(const Step& add, const Step& norm) {
  note(names_.at(plan_)[add.id]);
  const TensorView addend = hidden_, out = fresh(Value::kHidden, residual_.rows(), residual_.cols());
  kernels::SumAddNormArgs args{
      .addends = {&addend, 1}, .residual = residual_, .weight = norm_.weight, .eps = norm_.eps, .out = out};
  parts_.kernels.sum_add_norm(args);
  layout_of(add.value) = add.after;
  hidden_ = out;
  layout_ = norm.after;
  if (args.first_non_finite_row >= 0) note_non_finite(args.first_non_finite_row);
}

void Boundary::combine_add_norm(const planning::Edge& edge, size_t add) {
  const Waiting waiting = *std::exchange(waiting_, std::nullopt);
  LOCKSTEP_CHECK(hidden_.data == waiting.args.out.data, "{} rows combined, others entered", hidden_.rows());
  const Step& norm = edge.steps[add + 1];
  layout_of(edge.steps[add].value) = edge.steps[add].after;
  layout_ = norm.after;
  CombineAddNormArgs args{.combine = waiting.args,
                          .shared = waiting.shared,
                          .residual = residual_,
                          .weight = norm_.weight,
                          .eps = norm_.eps,
                          .out = fresh(Value::kHidden, residual_.rows(), residual_.cols())};
  // The stage alone reads what is normed last, where it takes all of its rows.
  if (add + 2 == edge.steps.size() && given_rows(given_next(edge)).num_rows == residual_.rows())
    args.out_readers = norm_.readers;
  parts_.communicator.combine_add_norm(args, parts_.kernels, waiting.step->over, tag_of(*waiting.step));
  hidden_ = args.out;
  if (args.first_non_finite_row >= 0) note_non_finite(args.first_non_finite_row);
}

void Boundary::fused_scatter(const Step& step) {
  const Layout slices = step.before.with(step.over, planning::Placement::kShard);
  Step scatter = step;
  scatter.after = slices;
  const auto keeps = kept_rows(scatter);
  const auto pieces = gathered_rows(step, slices);
  const TensorView out = fresh(Value::kHidden, hidden_.rows(), hidden_.cols());
  FusedScatterAddNormGatherArgs args{.in = hidden_,
                                     .keeps = keeps,
                                     .residual = residual_,
                                     .weight = norm_.weight,
                                     .eps = norm_.eps,
                                     .normed = normed_.view({residual_.rows(), hidden_.cols()}),
                                     .pieces = pieces,
                                     .out = out};
  parts_.communicator.fused_scatter_add_norm_gather(args, parts_.kernels, step.over, tag_of(step));
  hidden_ = out;
  layout_ = slices;
  if (args.first_non_finite_row >= 0) note_non_finite(args.first_non_finite_row);
  layout_ = step.after;
}

// Rare: remember every row of this replica that is not finite and the edge after which it was first seen.
void Boundary::note_non_finite(int64_t first_row) {
  const auto& grid = parts_.plans.grid;
  const int replica = grid.replica_of(parts_.rank);
  const auto wanted = planning::wanted_by_place(*step_plan_, replica);
  const auto rows = planning::rows_by_place(*step_plan_, replica);
  for (const Segment& segment : planning::segments_of(layout_, parts_.rank, grid, counts())) {
    if (grid.replica_of(segment.home) != replica) continue;
    const int64_t place = segment.home % grid.shape().attention_tp;
    const int64_t before = row_set_ == RowSet::kWanted ? first_wanted_of(segment.home) : 0;
    for (int64_t row = 0; row < segment.num_rows; ++row) {
      if (segment.first_row + row < first_row || row_is_finite(residual_, segment.first_row + row)) continue;
      const auto at =
          static_cast<size_t>(row_set_ == RowSet::kWanted ? before + row : place * segment.num_rows + row);
      const auto& of_replica = row_set_ == RowSet::kWanted ? wanted : rows;
      // Padding stands behind the rows, and keeps the number of its place.
      non_finite_.try_emplace(at < of_replica.size() ? of_replica[at] : static_cast<int32_t>(at), edge_);
    }
  }
}

// The place among its replica's wanted rows of the first wanted row at this home.
int64_t Boundary::first_wanted_of(int home) const {
  int64_t before = 0;
  const int width = parts_.plans.grid.shape().attention_tp;
  for (int other = home - home % width; other < home; ++other)
    before += step_plan_->logit_rows_per_home[static_cast<size_t>(other)];
  return before;
}

std::optional<NonFinite> Boundary::non_finite(int32_t first_row, int32_t last_row) const {
  std::optional<size_t> first_edge;
  NonFinite found;
  for (auto at = non_finite_.lower_bound(first_row); at != non_finite_.end() && at->first <= last_row; ++at) {
    if (!first_edge || at->second < *first_edge) {
      first_edge = at->second;
      found.first_row = at->first;
    }
    if (at->second == *first_edge) found.last_row = at->first;
  }
  if (!first_edge) return std::nullopt;
  found.where = fmt::format("after {}", planning::to_text(plan_->edges[*first_edge].from));
  return found;
}

ExpertRows Boundary::dispatch(const Rows& rows, const Routing& routing, int64_t first_expert,
                              int64_t num_local_experts, kernels::Readers readers) {
  LOCKSTEP_CHECK(edge_ > 0, "dispatch before any edge ({})", edge_);
  const planning::Edge& edge = plan_->edges[edge_ - 1];
  LOCKSTEP_CHECK(!edge.steps.empty() && edge.steps.back().kind == StepKind::kDispatch,
                 "the plan's edge into {} has no dispatch", planning::to_text(edge.to));
  const Step& step = edge.steps.back();
  const int64_t most =
      static_cast<int64_t>(step_plan_->max_rows_of_any_home) *
      static_cast<int64_t>(
          planning::segments_of(step.before, parts_.rank, parts_.plans.grid, counts()).size());
  LOCKSTEP_CHECK_LE(rows.x.rows(), most);  // the geometry that every rank computed from the same table
  parts_.communicator.dispatch({.x = rows.x,
                                .expert_idx = routing.expert_idx,
                                .first_expert = first_expert,
                                .num_local_experts = num_local_experts,
                                .slots = parts_.plans.chain[edge_].signatures.front().slots,
                                .max_rows = most,
                                .readers = readers,
                                .out = dispatched_.get()},
                               step.over, tag_of(step));
  note_stage();
  return {dispatched_->rows, dispatched_->expert_start};
}

bool Boundary::keeps_rows() const {
  LOCKSTEP_CHECK(edge_ > 0 && edge_ < plan_->edges.size(), "edge {} of {}", edge_, plan_->edges.size());
  const auto &in = plan_->edges[edge_ - 1].steps, &out = plan_->edges[edge_].steps;
  return !in.empty() && in.back().kind == StepKind::kDispatch && in.back().over.empty() && !out.empty() &&
         combines(out.front()) && out.front().over.empty() &&
         parts_.plans.chain[edge_].signatures.front().slots == planning::ExchangeSlots::kExactCount;
}

ExpertRows Boundary::room_for_experts(const Rows& rows, const Routing& routing, int64_t num_experts) {
  return {dispatched_->row_buffer.view({routing.expert_idx.num_elements(), rows.x.cols()}),
          dispatched_->start_buffer.view(DType::kI32, {num_experts + 1})};
}

TensorView Boundary::run_experts(const Rows& rows, const Routing& routing, int64_t first_expert,
                                 const kernels::GroupedFfnArgs& ffn, TensorView shared,
                                 kernels::Readers readers) {
  LOCKSTEP_CHECK(keeps_rows(), "rows are exchanged on the way to {} experts", ffn.gate.size());
  const Step& step = plan_->edges[edge_].steps.front();
  const int64_t num_rows = routing.expert_idx.rows();
  std::vector<Buffer>& slot_buffers = dispatched_->slot_buffers;
  if (slot_buffers.empty()) slot_buffers.emplace_back(*dispatched_->memory);
  const TensorView slot_of = slot_buffers[0].view(DType::kI32, {num_rows, routing.expert_idx.cols()});
  const kernels::PlaceSlotsArgs::Source placed{
      .x = rows.x, .expert_idx = routing.expert_idx, .slot_of = slot_of};
  const kernels::PullWeightedArgs::Source pulled{.y = ffn.y, .slot_of = slot_of};
  const TensorView out = combined_.view({num_rows, parts_.hidden});
  note(names_.at(plan_)[step.id]);
  parts_.kernels.routed_ffn(
      {.place = {.sources = {&placed, 1},
                 .first_expert = first_expert,
                 .expert_start = ffn.expert_start,
                 .out = ffn.x,
                 .readers = readers},
       .ffn = ffn,
       .pull = {.pull = {.sources = {&pulled, 1}, .weight = routing.weight, .out = out},
                .plus = shared,
                .onto = step.kind == StepKind::kFusedCombineAdd ? residual_ : TensorView()}});
  note_stage();
  done_steps_ = 1;
  return out;
}

TensorView Boundary::combine(TensorView y, const Routing& routing, TensorView shared) {
  const planning::Edge& edge = plan_->edges[edge_];
  LOCKSTEP_CHECK(!edge.steps.empty() && combines(edge.steps.front()),
                 "the plan's edge out of {} has no combine", planning::to_text(edge.from));
  const Step& step = edge.steps.front();
  const int64_t rows = routing.expert_idx.rows();
  const TensorView out = combined_.view({rows, parts_.hidden});
  const CombineArgs args{.dispatched = dispatched_.get(),
                         .y = y,
                         .expert_idx = routing.expert_idx,
                         .weight = routing.weight,
                         .out = out};
  if (step.kind == StepKind::kFusedCombineAdd) {
    parts_.communicator.fused_combine_add({.combine = args, .shared = shared, .residual = residual_},
                                          parts_.kernels, step.over, tag_of(step));
  } else if (adds_then_norms(edge, 1) && parts_.kernels.memory().access() != Memory::Access::kByHost) {
    waiting_ = Waiting{.args = args, .shared = shared, .step = &step};
  } else {
    parts_.communicator.combine(args, step.over, tag_of(step));
    if (shared.data != nullptr) parts_.kernels.add({.x = out, .y = shared});
  }
  note_stage();
  done_steps_ = 1;
  return out;
}

}  // namespace lockstep::collectives
