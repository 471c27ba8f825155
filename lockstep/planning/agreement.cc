#include "lockstep/planning/agreement.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::planning {
namespace {

// What one rank does together with others, in order.
struct Meeting {
  const Edge* edge = nullptr;
  const Step* step = nullptr;
};

std::vector<Meeting> meetings_of(const Plan& plan, const RankGrid& grid, int rank, int partner) {
  std::vector<Meeting> found;
  for (const Edge& edge : plan.edges)
    for (const Step& step : edge.steps) {
      const auto group = grid.group(rank, step.over);
      if (!step.over.empty() && std::find(group.begin(), group.end(), partner) != group.end())
        found.push_back({&edge, &step});
    }
  return found;
}

std::string words(const Meeting& meeting, const RankGrid& grid) {
  return fmt::format("step {} ({} {} over {})", meeting.step->id, name_of(meeting.step->kind),
                     name_of(meeting.step->value), grid.name_of(meeting.step->over));
}

Violation parted(const RankGrid& grid, int rank, int other, const Meeting* mine, const Meeting* theirs) {
  const Meeting& seen = mine != nullptr ? *mine : *theirs;
  Violation violation{to_text(seen.edge->from) + " -> " + to_text(seen.edge->to), seen.step->id, ""};
  violation.op = name_of(seen.step->kind);
  violation.over = grid.name_of(seen.step->over);
  violation.ranks = grid.group(rank, seen.step->over);
  const auto says = [&](const Meeting* meeting) {
    return meeting != nullptr ? words(*meeting, grid) : std::string("nothing more");
  };
  violation.says = fmt::format("they wait for each other for ever: rank {} goes on with {}, rank {} with {}",
                               rank, says(mine), other, says(theirs));
  return violation;
}

}  // namespace

std::vector<Violation> check_agreement(const RankGrid& grid, std::span<const Plan> of_ranks) {
  LOCKSTEP_CHECK_EQ(static_cast<int>(of_ranks.size()), grid.num_ranks());
  for (int rank = 0; rank < grid.num_ranks(); ++rank)
    for (int other = rank + 1; other < grid.num_ranks(); ++other) {
      if (of_ranks[rank] == of_ranks[other]) continue;
      const auto mine = meetings_of(of_ranks[rank], grid, rank, other);
      const auto theirs = meetings_of(of_ranks[other], grid, other, rank);
      for (size_t at = 0; at < std::max(mine.size(), theirs.size()); ++at) {
        const Meeting* one = at < mine.size() ? &mine[at] : nullptr;
        const Meeting* two = at < theirs.size() ? &theirs[at] : nullptr;
        if (one == nullptr || two == nullptr || !(*one->step == *two->step))
          return {parted(grid, rank, other, one, two)};
      }
    }
  return {};
}

std::vector<Violation> check_agreement(std::span<const StepPlan> of_ranks) {
  for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const StepPlan &first = of_ranks[0], &mine = of_ranks[rank];
    const auto differ = [&](std::string_view what, const auto& should,
                            const auto& is) -> std::vector<Violation> {
      Violation violation{"step plan", 0,
                          fmt::format("{} is {} on rank 0 and {} on rank {} (hashes {:016x} and {:016x})",
                                      what, should, is, rank, first.hash, mine.hash)};
      violation.ranks = {0, static_cast<int>(rank)};
      return {violation};
    };
    if (first.step != mine.step) return differ("the step", first.step, mine.step);
    if (first.regime != mine.regime) return differ("the regime", name_of(first.regime), name_of(mine.regime));
    if (first.protocol != mine.protocol)
      return differ("the protocol", static_cast<int>(first.protocol), static_cast<int>(mine.protocol));
    if (first.bucket != mine.bucket) return differ("the bucket", first.bucket, mine.bucket);
    if (first.padded_rows != mine.padded_rows)
      return differ("the padded rows", fmt::format("{}", fmt::join(first.padded_rows, ",")),
                    fmt::format("{}", fmt::join(mine.padded_rows, ",")));
    if (first.max_rows_of_any_home != mine.max_rows_of_any_home)
      return differ("the geometry", first.max_rows_of_any_home, mine.max_rows_of_any_home);
    if (hash_of(first) != hash_of(mine)) return differ("something in the counts", "one thing", "another");
  }
  return {};
}

}  // namespace lockstep::planning
