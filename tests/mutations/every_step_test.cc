// Every plan of two and of four ranks, and a sample of those of eight: each step left out, doubled, made
// another kind, moved to other axes, to the other value, behind its neighbour. Each such plan is caught, or
// there is a stated reason why it is the same plan in effect.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "lockstep/base/hash.h"
#include "tests/mutations/mutants.h"
#include "tests/planning/lattice.h"
#include "tests/sanitized.h"

namespace lockstep::planning::test {
namespace {

enum class Change { kLeftOut, kDoubled, kOtherKind, kOtherAxes, kOtherValue, kSwapped };
constexpr std::string_view kChangeNames[] = {"left out",   "doubled",     "other kind",
                                             "other axes", "other value", "swapped with the next"};

struct Mutation {
  size_t edge = 0, at = 0;
  Change change = Change::kLeftOut;
  StepKind kind = StepKind::kNorm;  // kOtherKind: the new one
  AxisSet over;                     // kOtherAxes: the new ones
};

constexpr int kNumKinds = static_cast<int>(StepKind::kFusedCombineAdd) + 1;

std::vector<Mutation> mutations_of(const Subject& subject) {
  std::vector<Mutation> mutations;
  for (size_t e = 0; e < subject.plan.edges.size(); ++e) {
    const auto& steps = subject.plan.edges[e].steps;
    for (size_t at = 0; at < steps.size(); ++at) {
      mutations.push_back({e, at, Change::kLeftOut});
      mutations.push_back({e, at, Change::kDoubled});
      mutations.push_back({e, at, Change::kOtherValue});
      if (at + 1 < steps.size()) mutations.push_back({e, at, Change::kSwapped});
      for (int kind = 0; kind < kNumKinds; ++kind)
        if (static_cast<StepKind>(kind) != steps[at].kind)
          mutations.push_back({e, at, Change::kOtherKind, static_cast<StepKind>(kind)});
      for (uint32_t bits = 0; bits <= subject.grid.all().bits(); ++bits)
        if (AxisSet(bits) != steps[at].over)
          mutations.push_back({e, at, Change::kOtherAxes, StepKind::kNorm, AxisSet(bits)});
    }
  }
  return mutations;
}

Plan apply(const Plan& plan, const Mutation& mutation) {
  Plan mutant = plan;
  auto& steps = mutant.edges[mutation.edge].steps;
  const auto at = steps.begin() + static_cast<std::ptrdiff_t>(mutation.at);
  switch (mutation.change) {
    case Change::kLeftOut:
      steps.erase(at);
      break;
    case Change::kDoubled:
      steps.insert(at, Step(*at));
      break;
    case Change::kOtherKind:
      at->kind = mutation.kind;
      break;
    case Change::kOtherAxes:
      at->over = mutation.over;
      break;
    case Change::kOtherValue:
      at->value = at->value == Value::kHidden ? Value::kResidual : Value::kHidden;
      break;
    case Change::kSwapped:
      std::swap(*at, *(at + 1));
      break;
  }
  return mutant;
}

// Which of the two values a step reads or writes.
struct Touches {
  bool hidden = false, residual = false;
};
Touches touches(const Step& step) {
  switch (step.kind) {
    case StepKind::kAllReduce:
    case StepKind::kReduceScatter:
    case StepKind::kAllGather:
    case StepKind::kSlice:
      return {step.value == Value::kHidden, step.value == Value::kResidual};
    case StepKind::kColumnsToRows:
    case StepKind::kDispatch:
    case StepKind::kCombine:
      return {true, false};
    default:
      return {true, true};
  }
}

bool is_row_by_row(const Step& step) {
  return step.kind != StepKind::kCombine && step.kind != StepKind::kDispatch &&
         step.kind != StepKind::kFusedCombineAdd;
}

// Two steps that may change places: they touch different values; or one selects rows and the other moves or
// adds rows, which is the same for the wanted rows alone.
std::string reason_for_order(const Step& first, const Step& second) {
  const Touches a = touches(first), b = touches(second);
  if (!(a.hidden && b.hidden) && !(a.residual && b.residual)) return "the two steps touch different values";
  if (first.kind == StepKind::kSelect && is_row_by_row(second))
    return "selecting rows commutes with moving them";
  if (second.kind == StepKind::kSelect && is_row_by_row(first))
    return "selecting rows commutes with moving them";
  return "";
}

// Why a mutant does the same as the plan; empty where it should not.
std::string reason_for(const Subject& subject, const Mutation& mutation, Guise guise) {
  const auto& steps = subject.plan.edges[mutation.edge].steps;
  const Step& step = steps[mutation.at];
  if (mutation.change == Change::kSwapped) return reason_for_order(step, steps[mutation.at + 1]);
  if (guise != Guise::kExecuted) return "";
  // Where claims are not looked at, what only they know goes by.
  const bool is_idempotent =
      step.kind == StepKind::kNorm || step.kind == StepKind::kSelect || step.kind == StepKind::kSlice;
  if (mutation.change == Change::kDoubled && is_idempotent) return "doing it twice is doing it once";
  const Touches touched = touches(step);
  const bool kind_says_value =
      (touched.hidden && touched.residual) || !is_row_by_row(step) || step.kind == StepKind::kColumnsToRows;
  if (mutation.change == Change::kOtherValue && kind_says_value)
    return "its kind alone says what it works on";
  const bool is_fused = step.kind == StepKind::kFusedAllReduceAddNorm ||
                        step.kind == StepKind::kFusedScatterAddNormGather ||
                        step.kind == StepKind::kFusedCombineAdd;
  const bool is_local = touched.hidden && touched.residual && !is_fused;
  const bool becomes_fused = mutation.kind == StepKind::kFusedAllReduceAddNorm ||
                             mutation.kind == StepKind::kFusedScatterAddNormGather;
  if (mutation.change == Change::kOtherKind && step.kind == StepKind::kAdd && becomes_fused)
    return "over no axes it is an add and a norm, and the norm that follows does what it did";
  const AxisSet sharded = step.before.axes_with(Placement::kShard, subject.grid);
  if (mutation.change == Change::kOtherAxes && step.kind == StepKind::kSlice &&
      mutation.over.contains(step.over) && sharded.contains(mutation.over - step.over))
    return "along the axes that were added the rows are sliced already";
  if (mutation.change == Change::kOtherAxes && is_local) return "it is local, axes mean nothing to it";
  return "";
}

struct Tally {
  std::map<std::string, int> caught;      // by change
  std::map<std::string, int> equivalent;  // by reason
  int silent = 0;
};

void try_all(const Subject& subject, Guise guise, Tally& tally) {
  for (const Mutation& mutation : mutations_of(subject)) {
    const Plan mutant = in_guise(apply(subject.plan, mutation), mutation.edge, guise);
    const std::string change(kChangeNames[static_cast<size_t>(mutation.change)]);
    if (mutant == subject.plan) continue;  // swapping two equal steps
    if (const auto violation = caught(subject, mutant, guise)) {
      EXPECT_GT(violation->says.size(), 20u);
      ++tally.caught[change];
      continue;
    }
    const std::string reason = reason_for(subject, mutation, guise);
    if (!reason.empty()) {
      ++tally.equivalent[reason];
      continue;
    }
    ++tally.silent;
    ADD_FAILURE() << "slipped through (" << name_of(guise) << "): " << change << ", step " << mutation.at
                  << " (" << name_of(mutation.kind) << ", " << subject.grid.name_of(mutation.over) << ") of\n"
                  << to_text(subject.plan.edges[mutation.edge], subject.grid) << "in " << subject.name;
    if (tally.silent > 5) return;
  }
}

std::vector<Subject> all_subjects(int ranks, int one_in) {
  using enum ModelShape::Ffn;
  ModelShape model = mutation_model();
  model.layers = {kDense, kExperts};
  std::vector<Subject> subjects;
  std::set<std::pair<std::string, uint64_t>> known;
  uint64_t draw = 0;
  for_each_flags(ranks, [&](ParallelFlags flags) {
    if (uniform_draw(8, draw++) * one_in >= 1) return;
    flags.max_running_requests = 4 * ranks + 1;
    flags.chunked_prefill_size = 4096;  // so that the prefill plan is another one
    for (Subject& subject : subjects_of(flags, model)) {
      const GridShape& grid = subject.grid.shape();
      const auto shape = fmt::format("{} {} {}", grid.attention_tp, grid.expert_tp, grid.dense_tp);
      if (known.insert({shape, hash_of(subject.plan)}).second) subjects.push_back(std::move(subject));
    }
  });
  return subjects;
}

struct Sweep {
  int ranks, one_in;
};
class EveryStep : public ::testing::TestWithParam<Sweep> {};

TEST_P(EveryStep, IsNeededAsItIs) {
  const auto subjects = all_subjects(GetParam().ranks, GetParam().one_in);
  EXPECT_GE(subjects.size(), 4u);
  for (const Guise guise : {Guise::kAsWritten, Guise::kConsistent, Guise::kExecuted}) {
    Tally tally;
    for (const Subject& subject : subjects) try_all(subject, guise, tally);
    EXPECT_EQ(tally.silent, 0);
    for (const auto change : kChangeNames) EXPECT_GT(tally.caught[std::string(change)], 0) << change;
    for (const auto& [change, times] : tally.caught)
      std::cout << name_of(guise) << ": caught, " << change << ": " << times << '\n';
    for (const auto& [reason, times] : tally.equivalent)
      std::cout << name_of(guise) << ": the same, because " << reason << ": " << times << '\n';
  }
}

constexpr int kFewer = lockstep::test::kSanitized ? 8 : 1;
INSTANTIATE_TEST_SUITE_P(Worlds, EveryStep,
                         ::testing::Values(Sweep{2, 1}, Sweep{4, kFewer}, Sweep{8, 8 * kFewer}));

}  // namespace
}  // namespace lockstep::planning::test
