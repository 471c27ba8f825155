// What a plan claims of its steps (layouts, order), checked while the steps are executed.
#include "lockstep/planning/symbolic_ranks.h"

namespace lockstep::planning::symbolic {
namespace {

std::string_view word_of(Value value) { return value == Value::kHidden ? "hidden" : "the residual"; }

// The value that each kind of step is written with; nullopt: either.
std::optional<Value> value_of(StepKind kind) {
  switch (kind) {
    case StepKind::kAllGather:
    case StepKind::kSlice:
    case StepKind::kAllReduce:
    case StepKind::kReduceScatter:
      return std::nullopt;
    case StepKind::kSeed:
    case StepKind::kAdd:
      return Value::kResidual;
    default:
      return Value::kHidden;
  }
}

bool is_local(StepKind kind) {
  return kind == StepKind::kSeed || kind == StepKind::kAdd || kind == StepKind::kNorm ||
         kind == StepKind::kSelect;
}

// The placement that a step takes along its axes, and what it makes of it; nullopt for others.
std::optional<std::pair<Placement, Placement>> rule_of(StepKind kind) {
  using enum Placement;
  switch (kind) {
    case StepKind::kAllReduce:
    case StepKind::kFusedAllReduceAddNorm:
    case StepKind::kFusedScatterAddNormGather:
      return std::pair(kPartial, kReplicate);
    case StepKind::kReduceScatter:
      return std::pair(kPartial, kShard);
    case StepKind::kAllGather:
      return std::pair(kShard, kReplicate);
    case StepKind::kSlice:
      return std::pair(kReplicate, kShard);
    case StepKind::kColumnsToRows:
      return std::pair(kColumns, kShard);
    default:
      return std::nullopt;
  }
}

std::string_view complaint_of(Placement takes) {
  switch (takes) {
    case Placement::kPartial:
      return "no sum is owed";
    case Placement::kShard:
      return "the rows are not sharded";
    case Placement::kReplicate:
      return "the rows are not replicated";
    case Placement::kColumns:
      return "the features are not split";
  }
  return "?";
}

}  // namespace

// Within an edge: moves of what was given, one add (or seed), one norm, moves of what was normed.
void Ranks::check_order(const Step& step) const {
  const bool is_add = step.kind == StepKind::kAdd || step.kind == StepKind::kSeed ||
                      step.kind == StepKind::kFusedAllReduceAddNorm ||
                      step.kind == StepKind::kFusedScatterAddNormGather ||
                      step.kind == StepKind::kFusedCombineAdd;
  if (is_add && phase_ != Phase::kGiven) throw Misstep("hidden is added to the residual a second time");
  if (step.kind == StepKind::kNorm && phase_ == Phase::kGiven)
    throw Misstep("the residual is normed before hidden is added to it");
  if (step.kind == StepKind::kNorm && phase_ == Phase::kNormed) throw Misstep("it is normed a second time");
  if (step.value == Value::kHidden && step.kind != StepKind::kNorm && phase_ == Phase::kAdded)
    throw Misstep("hidden was added to the residual; only the norm may follow");
  if (step.kind == StepKind::kSelect && row_set_ == RowSet::kWanted)
    throw Misstep("the wanted rows are selected twice");
}

void Ranks::check_claims_before(const Step& step, const EdgeContext& edge) const {
  if (const auto value = value_of(step.kind); value && *value != step.value)
    throw Misstep(fmt::format("it is written for {} but works on {}", word_of(step.value), word_of(*value)));
  if (is_local(step.kind) && !step.over.empty())
    throw Misstep(fmt::format("it is local and has no axes, written are {}", grid_.name_of(step.over)));
  check_order(step);
  // Seed and norm take the other value's layout; so does the add, of both.
  const bool is_move = rule_of(step.kind).has_value();
  const bool takes_residual =
      is_move ? step.value == Value::kResidual : step.kind == StepKind::kNorm || step.kind == StepKind::kAdd;
  const Layout& is = takes_residual ? residual_layout_ : hidden_layout_;
  if (step.before != is)
    throw Misstep(fmt::format("it takes {} but {} is {}", to_text(step.before, grid_),
                              word_of(takes_residual ? Value::kResidual : Value::kHidden),
                              to_text(is, grid_)));
  const bool joins = step.kind == StepKind::kAdd || step.kind == StepKind::kSeed;
  if (const AxisSet owed = hidden_layout_.axes_with(Placement::kPartial, grid_); joins && !owed.empty())
    throw Misstep(fmt::format("a sum over {} is still owed: hidden is {}", grid_.name_of(owed),
                              to_text(hidden_layout_, grid_)));
  if (step.kind == StepKind::kAdd && hidden_layout_ != residual_layout_)
    throw Misstep(fmt::format("it adds hidden, which is {}, to the residual, which is {}",
                              to_text(hidden_layout_, grid_), to_text(residual_layout_, grid_)));
  if (step.kind == StepKind::kDispatch && step.over != edge.takes.exchange)
    throw Misstep(fmt::format("it dispatches over {}, the stage exchanges over {}", grid_.name_of(step.over),
                              grid_.name_of(edge.takes.exchange)));
  if (step.kind == StepKind::kDispatch && phase_ != Phase::kNormed)
    throw Misstep("rows are dispatched before they are normed");
  const bool combines = step.kind == StepKind::kCombine || step.kind == StepKind::kFusedCombineAdd;
  if (combines && step.over != edge.gave.exchange)
    throw Misstep(fmt::format("it combines over {}, the stage exchanges over {}", grid_.name_of(step.over),
                              grid_.name_of(edge.gave.exchange)));
}

void Ranks::check_claims_after(const Step& step, const Layout& before, const EdgeContext& edge) {
  Layout should = step.before;
  if (const auto rule = rule_of(step.kind)) {
    const auto [takes, makes] = *rule;
    if (step.over.empty()) throw Misstep("it names no axes");
    if (const AxisSet wrong = step.over - before.axes_with(takes, grid_); !wrong.empty()) {
      const AxisSet owed = wrong & before.axes_with(Placement::kPartial, grid_);
      throw Misstep(fmt::format(
          "{} over {}: {} is {}", owed.empty() ? complaint_of(takes) : "a sum is still owed",
          grid_.name_of(owed.empty() ? wrong : owed), word_of(step.value), to_text(before, grid_)));
    }
    should = before.with(step.over, makes);
  } else if (step.kind == StepKind::kCombine || step.kind == StepKind::kFusedCombineAdd) {
    should = edge.gave.gives;
  }
  if (step.after != should)
    throw Misstep(
        fmt::format("it gives {}, written is {}", to_text(should, grid_), to_text(step.after, grid_)));
  layout_of(step.value) = should;
  if (step.kind == StepKind::kAdd || step.kind == StepKind::kSeed) phase_ = Phase::kAdded;
  if (step.kind == StepKind::kNorm) phase_ = Phase::kNormed;
  check_fused_add(step, should);
  check_rows(Value::kHidden);
  if (has_residual_) check_rows(Value::kResidual);
}

// A fused step adds hidden to the residual somewhere inside: are both whole and in one layout there?
void Ranks::check_fused_add(const Step& step, const Layout& after) {
  Layout added = after;
  if (step.kind == StepKind::kFusedScatterAddNormGather) added = after.with(step.over, Placement::kShard);
  const bool norms =
      step.kind == StepKind::kFusedAllReduceAddNorm || step.kind == StepKind::kFusedScatterAddNormGather;
  if (!norms && step.kind != StepKind::kFusedCombineAdd) return;
  if (const AxisSet owed = added.axes_with(Placement::kPartial, grid_); !owed.empty())
    throw Misstep(
        fmt::format("a sum over {} is still owed: hidden is {}", grid_.name_of(owed), to_text(added, grid_)));
  if (added != residual_layout_)
    throw Misstep(fmt::format("it adds hidden, which is {}, to the residual, which is {}",
                              to_text(added, grid_), to_text(residual_layout_, grid_)));
  phase_ = norms ? Phase::kNormed : Phase::kAdded;
}

// A layout says which rows each rank holds: does it hold them?
void Ranks::check_rows(Value value) {
  for (int rank = 0; rank < grid_.num_ranks(); ++rank) {
    const std::vector<RowId>& should = rows_of(layout_of(value), rank, row_set_);
    const std::vector<RowId>& held = of(value)[rank].rows;
    if (held != should)
      throw Misstep(fmt::format("rank {} holds {} rows of {}, which as {} are {}", rank, held.size(),
                                word_of(value), to_text(layout_of(value), grid_), should.size()),
                    rank);
  }
}

}  // namespace lockstep::planning::symbolic
