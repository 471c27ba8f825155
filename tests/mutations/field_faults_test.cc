// Faults that others met in the field, as mutations of a plan. Each is put wherever a plan has a place for
// it, on configurations of one, two and three axes, in three guises; each must be caught, in words that say
// what is wrong. (That plans of different ranks differ has no way to be written here: a plan is one value for
// all.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "tests/mutations/mutants.h"

namespace lockstep::planning::test {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using enum Placement;

using Steps = std::vector<Step>;
// Where a fault is put: step `at` of an edge.
struct Place {
  const Subject& subject;
  const Edge& edge;
  size_t edge_index, at;
  const Step& step() const { return edge.steps[at]; }
  const RankGrid& grid() const { return subject.grid; }
  AxisSet axes_with(Placement placement, const Layout& layout) const {
    return layout.axes_with(placement, subject.grid);
  }
};
// The edge's steps with the fault; every way to put it there.
using Mutate = std::function<std::vector<Steps>(const Place&)>;

struct Fault {
  const char* name;
  Mutate mutate;
  const char* says;  // a pattern that every message must match
};

Steps without(const Place& place) {
  Steps steps = place.edge.steps;
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(place.at));
  return steps;
}
Steps with_inserted(const Place& place, size_t at, const Step& step) {
  Steps steps = place.edge.steps;
  steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), step);
  return steps;
}
Steps with_changed(const Place& place, const std::function<void(Step&)>& change) {
  Steps steps = place.edge.steps;
  change(steps[place.at]);
  return steps;
}
std::vector<Steps> when(bool fits, const std::function<Steps()>& make) {
  if (!fits) return {};
  return std::vector<Steps>{make()};
}
Mutate leave_out(StepKind kind, Value value = Value::kHidden) {
  return [=](const Place& p) {
    return when(p.step().kind == kind && p.step().value == value, [&] { return without(p); });
  };
}
Mutate double_up(StepKind kind) {
  return [=](const Place& p) {
    return when(p.step().kind == kind, [&] { return with_inserted(p, p.at, p.step()); });
  };
}
// Over every other set of axes that `accepts`.
Mutate redirect(StepKind kind, const std::function<bool(const Place&, AxisSet)>& accepts) {
  return [=](const Place& p) {
    std::vector<Steps> all;
    if (p.step().kind != kind) return all;
    for (uint32_t bits = 0; bits <= p.grid().all().bits(); ++bits)
      if (const AxisSet over(bits); over != p.step().over && accepts(p, over))
        all.push_back(with_changed(p, [&](Step& step) { step.over = over; }));
    return all;
  };
}
bool is_another_group(const Place& p, AxisSet over) {
  return !over.empty() && !over.contains(p.step().over) && !p.step().over.contains(over);
}
bool is_part_of_group(const Place& p, AxisSet over) { return !over.empty() && p.step().over.contains(over); }
bool is_wider_group(const Place& p, AxisSet over) { return over.contains(p.step().over); }

// What the verifier may say of sums, of rows, of what is wrong in value.
#define OWED "a sum over [a-z0-9,]+ is still owed|a sum is still owed over|takes .* but .* is "
#define VALUE "is [0-9a-f]{16} on rank [0-9]+, on one rank it is [0-9a-f]{16}"
#define ROWS "rows that are not the same|rank [0-9]+ holds [0-9]+ rows|it adds hidden, which is"
#define TWICE "arrives twice|the rows are not sharded|no sum is owed|takes .* but .* is "

const Fault kFaults[] = {
    // ---- one collective lost, done twice, or done with others
    // ------------------------------------------------
    {"an all-reduce is lost", leave_out(StepKind::kAllReduce), OWED "|" VALUE},
    {"a reduce-scatter is lost", leave_out(StepKind::kReduceScatter),
     OWED "|" ROWS "|" VALUE "|arrives twice"},
    {"the fused step is lost", leave_out(StepKind::kFusedAllReduceAddNorm),
     "ends before hidden is added|dispatched before they are normed|" OWED "|" ROWS "|" VALUE},
    {"a gather is lost", leave_out(StepKind::kAllGather), ROWS "|takes .* but .* is "},
    {"a gather of the residual is lost", leave_out(StepKind::kAllGather, Value::kResidual),
     ROWS "|takes .* but .* is "},
    {"the columns are not joined", leave_out(StepKind::kColumnsToRows), ROWS "|" VALUE},
    {"a dispatch is lost", leave_out(StepKind::kDispatch), "reached without a dispatch"},
    {"a combine is lost", leave_out(StepKind::kCombine), "dispatched and is not yet combined"},
    {"an all-reduce is done twice", double_up(StepKind::kAllReduce),
     "no sum is owed|takes .* but .* is |" VALUE},
    {"a reduce-scatter is done twice (B002)", double_up(StepKind::kReduceScatter),
     "no sum is owed|takes .* but .* is |" ROWS},
    {"the fused step is done twice (B009)", double_up(StepKind::kFusedAllReduceAddNorm),
     "added to the residual a second time|" VALUE},
    {"a gather is done twice", double_up(StepKind::kAllGather), TWICE},
    {"the columns are joined twice", double_up(StepKind::kColumnsToRows),
     "columns of different rows|the features are not split|takes .* but .* is "},
    {"rows are dispatched twice", double_up(StepKind::kDispatch), "dispatched and is not yet combined"},
    {"rows are combined twice", double_up(StepKind::kCombine),
     "a combine without a dispatch|takes .* but .* is "},
    {"an all-reduce over another group", redirect(StepKind::kAllReduce, is_another_group),
     "no sum is owed|it gives|" ROWS "|" VALUE},
    {"a reduce-scatter over another group", redirect(StepKind::kReduceScatter, is_another_group),
     "no sum is owed|it gives|" ROWS},
    {"the fused step over another group", redirect(StepKind::kFusedAllReduceAddNorm, is_another_group),
     "no sum is owed|it gives|" ROWS "|" VALUE},
    {"a gather over another group", redirect(StepKind::kAllGather, is_another_group),
     TWICE "|it gives|" ROWS},
    {"a combine over another group", redirect(StepKind::kCombine, is_another_group),
     "it combines over .* (what was dispatched|the stage exchanges) over"},
    {"a dispatch over another group", redirect(StepKind::kDispatch, is_another_group),
     "the stage exchanges over|computed twice|" VALUE "|what was dispatched over"},

    // ---- what the field did
    // ----------------------------------------------------------------------------------
    {"replicated rows are gathered (B001)",
     [](const Place& p) {
       std::vector<Steps> all;
       const AxisSet replicated = p.axes_with(kReplicate, p.step().before);
       if (p.step().kind != StepKind::kNorm) return all;
       for (uint32_t bits = replicated.bits(); bits != 0; bits = (bits - 1) & replicated.bits())
         all.push_back(with_inserted(p, p.at + 1,
                                     {.kind = StepKind::kAllGather,
                                      .over = AxisSet(bits),
                                      .before = p.step().after,
                                      .after = p.step().after}));
       return all;
     },
     "arrives twice"},
    {"replicated rows are summed (B001)",
     [](const Place& p) {
       const AxisSet replicated = p.axes_with(kReplicate, p.step().before);
       return when(p.step().kind == StepKind::kNorm && !replicated.empty(), [&] {
         return with_inserted(p, p.at + 1,
                              {.kind = StepKind::kAllReduce,
                               .over = replicated,
                               .before = p.step().after,
                               .after = p.step().after});
       });
     },
     "no sum is owed|" VALUE},
    {"the sum that was not there: a fused all-reduce instead of add, norm and gather (B004)",
     [](const Place& p) {
       const auto& steps = p.edge.steps;
       const bool fits = p.edge.from.kind == StageKind::kDense &&
                         p.axes_with(kPartial, p.edge.given).empty() && p.at + 2 < steps.size() &&
                         steps[p.at].kind == StepKind::kAdd && steps[p.at + 1].kind == StepKind::kNorm &&
                         steps[p.at + 2].kind == StepKind::kAllGather;
       return when(fits, [&] {
         Steps faulty(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(p.at));
         faulty.push_back({.kind = StepKind::kFusedAllReduceAddNorm,
                           .over = steps[p.at + 2].over,
                           .before = p.edge.given,
                           .after = p.edge.needed});
         return faulty;
       });
     },
     "rows that are not the same"},
    {"the sum that was not there: an all-reduce after a whole dense layer (B004, B021)",
     [](const Place& p) {
       const AxisSet whole = p.axes_with(kReplicate, p.edge.given);
       return when(p.edge.from.kind == StageKind::kDense && p.at == 0 && !whole.empty(), [&] {
         return with_inserted(
             p, 0,
             {.kind = StepKind::kAllReduce, .over = whole, .before = p.edge.given, .after = p.edge.given});
       });
     },
     "no sum is owed|" VALUE},
    {"the combine summed, and the layer sums again (B006, B017)",
     [](const Place& p) {
       const bool fits = p.step().kind == StepKind::kCombine && p.axes_with(kPartial, p.edge.given).empty();
       return when(fits, [&] {
         return with_inserted(p, p.at + 1,
                              {.kind = StepKind::kAllReduce,
                               .over = p.step().over,
                               .before = p.edge.given,
                               .after = p.edge.given});
       });
     },
     "rows that are not the same"},
    {"one of two owed sums is paid (B008)",
     [](const Place& p) {
       std::vector<Steps> all;
       const bool pays = p.step().kind == StepKind::kAllReduce || p.step().kind == StepKind::kReduceScatter ||
                         p.step().kind == StepKind::kFusedAllReduceAddNorm;
       if (!pays) return all;
       for (uint32_t bits = 1; bits <= p.grid().all().bits(); ++bits)
         if (const AxisSet over(bits); over != p.step().over && is_part_of_group(p, over))
           all.push_back(with_changed(p, [&](Step& step) { step.over = over; }));
       return all;
     },
     "a sum over|it gives .* written is|" OWED "|" ROWS "|" VALUE},
    {"rows are sliced where addends must be summed (B019)",
     [](const Place& p) {
       return when(p.step().kind == StepKind::kReduceScatter,
                   [&] { return with_changed(p, [](Step& step) { step.kind = StepKind::kSlice; }); });
     },
     "a sum is still owed over|" VALUE},
    {"the last layer leaves its rows scattered (B014)",
     [](const Place& p) {
       const bool fits = p.edge.to.kind == StageKind::kHead && p.step().kind == StepKind::kAllGather;
       return when(fits, [&] { return without(p); });
     },
     "hold|takes .* but .* is "},
    {"the embedding is summed over ranks that hold other rows (B016)",
     [](const Place& p) {
       const AxisSet sharded = p.axes_with(kShard, p.edge.given);
       return when(p.step().kind == StepKind::kSeed && p.at == 0 && !sharded.empty(), [&] {
         return with_inserted(
             p, 0,
             {.kind = StepKind::kAllReduce, .over = sharded, .before = p.edge.given, .after = p.edge.given});
       });
     },
     "rows that are not the same"},
    {"it is normed before the sum is paid",
     [](const Place& p) {
       const auto& steps = p.edge.steps;
       const bool fits =
           p.at + 2 < steps.size() && steps[p.at + 1].kind == StepKind::kAdd &&
           (steps[p.at].kind == StepKind::kAllReduce || (steps[p.at].kind == StepKind::kReduceScatter));
       return when(fits, [&] {  // reduce, add, norm -> add, norm, reduce
         Steps faulty = steps;
         std::rotate(faulty.begin() + static_cast<std::ptrdiff_t>(p.at),
                     faulty.begin() + static_cast<std::ptrdiff_t>(p.at + 1),
                     faulty.begin() + static_cast<std::ptrdiff_t>(p.at + 3));
         return faulty;
       });
     },
     OWED "|" ROWS "|" VALUE},
    {"the residual is not sliced", leave_out(StepKind::kSlice, Value::kResidual),
     ROWS "|takes .* but the residual is "},
    {"a combine over more than was dispatched over", redirect(StepKind::kCombine, is_wider_group),
     "it combines over .* (what was dispatched|the stage exchanges) over"},
    {"a combine over a part of what was dispatched over",
     redirect(StepKind::kCombine, [](const Place& p, AxisSet over) { return p.step().over.contains(over); }),
     "it combines over .* (what was dispatched|the stage exchanges) over"},
    {"replicated rows are all dispatched (B230)", redirect(StepKind::kDispatch, is_wider_group),
     "the stage exchanges over|computed twice"},
    {"rows are dispatched before they are normed",
     [](const Place& p) {
       return when(
           p.step().kind == StepKind::kDispatch && p.at > 0 && p.edge.steps[p.at - 1].kind == StepKind::kNorm,
           [&] {
             Steps faulty = p.edge.steps;
             std::swap(faulty[p.at - 1], faulty[p.at]);
             return faulty;
           });
     },
     "dispatched before they are normed|dispatched and is not yet combined|only the norm may follow"},
    {"all rows go to the head", leave_out(StepKind::kSelect), "rank [0-9]+ holds [0-9]+ rows, needed are"},
    {"columns are joined over a part of the group", redirect(StepKind::kColumnsToRows, is_part_of_group),
     "it gives .* written is|rank [0-9]+ holds [0-9]+ rows"},
    {"the layer's output is not added to the residual", leave_out(StepKind::kAdd, Value::kResidual),
     "normed before hidden is added|" VALUE},
    // ---- drafts
    // ------------------------------------------------------------------------------------------------
    {"rows that were kept for drafts are normed again for the head",
     [](const Place& p) {
       return when(p.edge.from.kind == StageKind::kTap && p.at == 0, [&] {
         return with_inserted(p, 0, {.kind = StepKind::kNorm, .before = p.edge.given, .after = p.edge.given});
       });
     },
     "normed a second time|takes .* but .* is |" ROWS "|" VALUE},
    {"a draft is added to the residual of its embedding",
     [](const Place& p) {
       return when(p.edge.from.kind == StageKind::kJoin && p.step().kind == StepKind::kSeed,
                   [&] { return with_changed(p, [](Step& step) { step.kind = StepKind::kAdd; }); });
     },
     "there is no residual to add to|takes .* but .* is |it adds hidden, which is"},
    {"only wanted rows are kept for drafts",
     [](const Place& p) {
       return when(p.edge.to.kind == StageKind::kTap && p.at + 1 == p.edge.steps.size(), [&] {
         return with_inserted(p, p.edge.steps.size(),
                              {.kind = StepKind::kSelect, .before = p.edge.needed, .after = p.edge.needed});
       });
     },
     "rank [0-9]+ holds [0-9]+ rows, needed are"},
    {"a rank keeps the rows at home with it, and the next draft's rows have other homes",
     [](const Place& p) {
       const AxisSet shared = p.axes_with(kReplicate, p.edge.needed);
       const bool fits =
           p.edge.to.kind == StageKind::kTap && p.at + 1 == p.edge.steps.size() && !shared.empty();
       return when(fits, [&] {
         return with_inserted(p, p.edge.steps.size(),
                              {.kind = StepKind::kSlice,
                               .over = shared,
                               .before = p.edge.needed,
                               .after = p.edge.needed.with(shared, kShard)});
       });
     },
     "rank [0-9]+ holds [0-9]+ rows, needed are"},
    {"the norm is forgotten", leave_out(StepKind::kNorm),
     "only the norm may follow|ends before hidden is added|" VALUE "|" ROWS},
};

struct Tried {
  int places = 0, mutants = 0;
  std::map<std::string, int> subjects;
};

void try_fault(const Fault& fault, const Place& place, Tried& tried) {
  const auto all = fault.mutate(place);
  tried.places += !all.empty();
  for (const Steps& steps : all) {
    Plan mutant = place.subject.plan;
    mutant.edges[place.edge_index].steps = steps;
    for (const Guise guise : {Guise::kAsWritten, Guise::kConsistent, Guise::kExecuted}) {
      const Plan faulty = in_guise(mutant, place.edge_index, guise);
      const auto violation = caught(place.subject, faulty, guise);
      ASSERT_TRUE(violation) << "slipped through: " << fault.name << ", " << name_of(guise) << ", of\n"
                             << to_text(place.edge, place.grid()) << "now\n"
                             << to_text(faulty.edges[place.edge_index], place.grid()) << place.subject.name;
      EXPECT_THAT(violation->says, ContainsRegex(fault.says)) << fault.name << ", " << name_of(guise);
      // It is found where it is, or where the rows that it spoilt are next needed.
      const Edge& next = faulty.edges[std::min(place.edge_index + 1, faulty.edges.size() - 1)];
      const auto text = [](const Edge& edge) { return to_text(edge.from) + " -> " + to_text(edge.to); };
      EXPECT_THAT(violation->edge, AnyOf(text(place.edge), text(next))) << fault.name;
      ++tried.mutants;
    }
    ++tried.subjects[place.subject.name];
  }
}

class FieldFault : public ::testing::TestWithParam<size_t> {};

TEST_P(FieldFault, IsCaughtWhereverItIsPut) {
  const Fault& fault = kFaults[GetParam()];
  Tried tried;
  for (const Subject& subject : chosen_subjects()) {
    ASSERT_FALSE(caught(subject, subject.plan, Guise::kAsWritten)) << subject.name;
    for (size_t e = 0; e < subject.plan.edges.size(); ++e)
      for (size_t at = 0; at < subject.plan.edges[e].steps.size(); ++at)
        try_fault(fault, {subject, subject.plan.edges[e], e, at}, tried);
  }
  std::cout << fault.name << ": " << tried.mutants << " mutants at " << tried.places << " places of "
            << tried.subjects.size() << " plans\n";
  EXPECT_GE(tried.subjects.size(), 2u) << fault.name << " has no place in the chosen plans";
}

INSTANTIATE_TEST_SUITE_P(All, FieldFault, ::testing::Range(size_t{0}, std::size(kFaults)));

// The shared expert of a layer whose experts' sum is owed is itself split over the ranks that owe it, by the
// stage's signature: a plan has no step by which a whole term could be added inside the sum (B021). What can
// be written is a plan that claims a sum of a stage that declares none.
TEST(DeclaredSums, CannotBeClaimedByThePlan) {
  int num_tried = 0;
  for (const Subject& subject : chosen_subjects())
    for (size_t e = 0; e < subject.plan.edges.size(); ++e) {
      const Edge& edge = subject.plan.edges[e];
      const AxisSet whole = edge.given.axes_with(kReplicate, subject.grid);
      if (whole.empty() || edge.from.kind == StageKind::kEmbedding) continue;
      Plan mutant = subject.plan;
      mutant.edges[e].given = edge.given.with(whole, kPartial);
      mutant.edges[e].steps.insert(mutant.edges[e].steps.begin(), {.kind = StepKind::kAllReduce,
                                                                   .over = whole,
                                                                   .before = mutant.edges[e].given,
                                                                   .after = edge.given});
      const auto violation = caught(subject, in_guise(mutant, e, Guise::kAsWritten), Guise::kAsWritten);
      ASSERT_TRUE(violation);
      EXPECT_THAT(violation->says,
                  ContainsRegex("declared with no signature that needs .* and gives .*Partial"));
      ++num_tried;
    }
  EXPECT_GT(num_tried, 5);
}

// Two steps with one number would meet each other's partners.
TEST(StepNumbers, MustAscend) {
  for (const Subject& subject : chosen_subjects()) {
    Plan twice = subject.plan;
    Step& step = twice.edges[1].steps.front();
    step.id = twice.edges[0].steps.back().id;
    const auto violation = caught(subject, twice, Guise::kAsWritten);
    ASSERT_TRUE(violation);
    EXPECT_THAT(violation->says, ContainsRegex("step [0-9]+ follows step [0-9]+"));
  }
}

}  // namespace
}  // namespace lockstep::planning::test
