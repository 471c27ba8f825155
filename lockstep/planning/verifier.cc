#include "lockstep/planning/verifier.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/planning/symbolic_ranks.h"

namespace lockstep::planning {
namespace {

using symbolic::Held;

std::string text_of(const Edge& edge) { return to_text(edge.from) + " -> " + to_text(edge.to); }

// The declared signature by which stage `at` runs in this plan; nullptr where it declares none that fits.
const Signature* runs_by(const Plan& plan, std::span<const Stage> chain, size_t at) {
  const Layout* needs = at > 0 ? &plan.edges[at - 1].needed : nullptr;
  const Layout* gives = at < plan.edges.size() ? &plan.edges[at].given : nullptr;
  return signature_of(chain[at], needs, gives);
}

class Verification {
 public:
  Verification(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid,
               const StepPlan& step_plan, const VerifierOptions& options)
      : plan_(plan),
        chain_(chain),
        grid_(grid),
        table_(step_plan, grid),
        ranks_(grid, table_, options),
        expected_(symbolic::run_on_one_rank(
            chain, grid.size(plan.edges.back().given.axes_with(Placement::kColumns, grid)), grid, table_,
            options)) {}

  std::vector<Violation> run() {
    ranks_.embed(*runs_by(plan_, chain_, 0));
    for (size_t at = 0; at < plan_.edges.size() && found_.empty(); ++at) run_edge(at);
    return found_;
  }

 private:
  void report(size_t edge, uint32_t step, std::string says, int rank) {
    Violation violation{text_of(plan_.edges[edge]), step, std::move(says)};
    // The step itself if it is one of a group, else the last of the edge that was.
    const Step* seen = nullptr;
    for (const Step& one : plan_.edges[edge].steps)
      if (one.id <= step && (!one.over.empty() || one.id == step)) seen = &one;
    if (seen != nullptr) {
      violation.op = name_of(seen->kind);
      violation.over = grid_.name_of(seen->over);
    }
    violation.ranks = grid_.group(rank, seen != nullptr ? seen->over : AxisSet());
    found_.push_back(std::move(violation));
  }

  void run_edge(size_t at) {
    const Edge& edge = plan_.edges[at];
    const symbolic::Ranks::EdgeContext context{at, chain_[at + 1], *runs_by(plan_, chain_, at),
                                               *runs_by(plan_, chain_, at + 1)};
    const Step* last = nullptr;
    try {
      for (const Step& step : edge.steps) {
        last = &step;
        ranks_.run_step(step, context);
      }
    } catch (const symbolic::Misstep& misstep) {
      return report(
          at, last->id,
          fmt::format("{} over {}: {}", name_of(last->kind), grid_.name_of(last->over), misstep.what()),
          misstep.rank);
    }
    const uint32_t last_id = last != nullptr ? last->id : 0;
    try {
      ranks_.finish_edge(context);
      check_rows(at, last_id);
      if (found_.empty() && edge.to.kind != StageKind::kSampler)
        ranks_.run_stage(chain_[at + 1], context.takes);
    } catch (const symbolic::Misstep& misstep) {
      report(at, last_id, misstep.what(), misstep.rank);
    }
  }

  void check_rows(size_t at, uint32_t step) {
    const Edge& edge = plan_.edges[at];
    const auto set =
        sees_wanted_rows(edge.to.kind) ? symbolic::Ranks::RowSet::kWanted : symbolic::Ranks::RowSet::kAll;
    for (int rank = 0; rank < grid_.num_ranks() && found_.empty(); ++rank) {
      const Held& hidden = ranks_.hidden(rank);
      if (const auto& needed = ranks_.rows_of(edge.needed, rank, set); hidden.rows != needed)
        return report(at, step,
                      fmt::format("rank {} holds {} rows, needed are {} as {}", rank, hidden.rows.size(),
                                  needed.size(), to_text(edge.needed, grid_)),
                      rank);
      if (edge.to.kind == StageKind::kSampler) {
        check_values(at, step, rank, hidden, expected_.logits, "logits");
      } else {
        check_values(at, step, rank, hidden, expected_.hidden[at], "hidden");
        check_values(at, step, rank, ranks_.residual(rank), expected_.residual[at], "residual");
      }
    }
  }

  void check_values(size_t at, uint32_t step, int rank, const Held& held,
                    const std::vector<uint64_t>& expected, std::string_view what) {
    const bool is_logits = &expected == &expected_.logits;
    for (size_t i = 0; i < held.rows.size(); ++i) {
      const symbolic::RowId row = held.rows[i];
      if (table_.rows[row].padding) continue;
      const std::span<const uint64_t> columns(held.values.data() + i * held.width, held.width);
      const uint64_t value = is_logits ? symbolic::fold_columns(columns) : columns[0];
      if (value != expected[row])
        return report(at, step,
                      fmt::format("{} of {} is {:016x} on rank {}, on one rank it is {:016x}", what,
                                  table_.name_of(row), value, rank, expected[row]),
                      rank);
    }
  }

  const Plan& plan_;
  std::span<const Stage> chain_;
  const RankGrid& grid_;
  const symbolic::RowTable table_;
  symbolic::Ranks ranks_;
  const symbolic::Expected expected_;
  std::vector<Violation> found_;
};

// Where rows stand, if not where their prompts and the ranks that share them say; empty where they do.
std::string wrong_places(const RankGrid& grid, const StepPlan& plan) {
  const GridShape& shape = grid.shape();
  const bool is_zigzag = shape.row_shares == RowShares::kZigzag && shape.attn_cp > 1 &&
                         plan.regime == Regime::kPrefill && plan.forward == Forward::kTarget;
  if (plan.places.size() != (is_zigzag ? plan.counts.size() : 0))
    return fmt::format("places of rows of {} replicas in a {} step whose ranks share rows {}",
                       plan.places.size(), name_of(plan.regime), name_of(shape.row_shares));
  for (size_t replica = 0; replica < plan.places.size(); ++replica) {
    const ReplicaCounts& counts = plan.counts[replica];
    int64_t of_prompts = 0;
    for (const int32_t rows : counts.prompt_rows) of_prompts += std::max(rows, 0);
    if (of_prompts > counts.num_target_rows)
      return fmt::format("replica {} has {} rows of prompts among {}", replica, of_prompts,
                         counts.num_target_rows);
    const auto should =
        zigzag_places(counts.num_target_rows, counts.prompt_rows, plan.padded_rows[replica], shape.attn_cp);
    const auto& is = plan.places[replica];
    if (is.size() != should.size())
      return fmt::format("replica {} has places of {} rows, the counts say {}", replica, is.size(),
                         should.size());
    for (size_t row = 0; row < is.size(); ++row)
      if (is[row] != should[row])
        return fmt::format("row {} of replica {} stands at {}, the counts say {}", row, replica, is[row],
                           should[row]);
  }
  return "";
}

// Is the step plan what its own counts say? A plan that was made from one rank's numbers is found here.
std::vector<Violation> check_step_plan(const RankGrid& grid, const StepPlan& plan) {
  std::vector<Violation> found;
  const int32_t quantum = grid.shape().attention_tp;
  const int32_t bucket = plan.bucket;
  const auto expect = [&](const std::string& what, int64_t is, int64_t should) {
    if (is != should && found.empty())
      found.push_back({"step plan", 0, fmt::format("{} is {}, the counts say {}", what, is, should)});
  };
  expect("number of replicas", static_cast<int64_t>(plan.counts.size()), grid.num_replicas());
  expect("number of padded counts", static_cast<int64_t>(plan.padded_rows.size()), grid.num_replicas());
  expect("number of homes", static_cast<int64_t>(plan.rows_per_home.size()), grid.num_ranks());
  expect("number of logit homes", static_cast<int64_t>(plan.logit_rows_per_home.size()), grid.num_ranks());
  if (!found.empty()) return found;
  if (auto says = wrong_places(grid, plan); !says.empty()) return {{"step plan", 0, std::move(says)}};
  int32_t most = 0;
  for (int rank = 0; rank < grid.num_ranks(); ++rank) {
    const int replica = grid.replica_of(rank);
    const ReplicaCounts& counts = plan.counts[replica];
    const int32_t rounded = round_up(num_rows(counts, plan.forward), quantum);
    const int32_t padded = bucket > 0 && bucket >= rounded ? bucket : rounded;
    expect(fmt::format("padded rows of replica {}", replica), plan.padded_rows[replica], padded);
    expect(fmt::format("rows of home {}", rank), plan.rows_per_home[rank], padded / quantum);
    const int32_t first = rank % quantum * (padded / quantum), last = first + padded / quantum;
    const auto at_home = [&](int32_t row) {
      const int32_t place = place_of(plan, replica, row);
      return place >= first && place < last;
    };
    expect(fmt::format("logit rows of home {}", rank), plan.logit_rows_per_home[rank],
           std::count_if(counts.logit_rows.begin(), counts.logit_rows.end(), at_home));
    most = std::max(most, padded / quantum);
  }
  expect("most rows of any home", plan.max_rows_of_any_home, most);
  expect("what is left of the bucket beyond the row quantum", bucket % quantum, 0);
  expect("the protocol", static_cast<int64_t>(plan.protocol), static_cast<int64_t>(protocol_of(plan.regime)));
  if (plan.hash != hash_of(plan) && found.empty())
    found.push_back(
        {"step plan", 0,
         fmt::format("its hash is {:016x}, its fields hash to {:016x}", plan.hash, hash_of(plan))});
  return found;
}

}  // namespace

std::vector<Violation> check_structure(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid) {
  if (plan.edges.empty() || plan.edges.size() + 1 != chain.size())
    return {{"", 0, fmt::format("{} edges for {} stages", plan.edges.size(), chain.size())}};
  int64_t previous = -1;
  for (size_t at = 0; at < plan.edges.size(); ++at) {
    const Edge& edge = plan.edges[at];
    const StageRef from{chain[at].kind, chain[at].layer}, to{chain[at + 1].kind, chain[at + 1].layer};
    if (edge.from != from || edge.to != to)
      return {{text_of(edge), 0,
               fmt::format("it joins other stages than the chain, where {} leads to {}", to_text(from),
                           to_text(to))}};
    for (const Step& step : edge.steps) {
      if (step.id <= previous)
        return {{text_of(edge), step.id, fmt::format("step {} follows step {}", step.id, previous)}};
      previous = step.id;
    }
  }
  for (size_t at = 0; at < chain.size(); ++at) {
    if (runs_by(plan, chain, at) != nullptr) continue;
    const auto needed = at > 0 ? to_text(plan.edges[at - 1].needed, grid) : "nothing";
    const auto given = at < plan.edges.size() ? to_text(plan.edges[at].given, grid) : "nothing";
    return {{text_of(plan.edges[at > 0 ? at - 1 : 0]), 0,
             fmt::format("{} is declared with no signature that needs {} and gives {}",
                         name_of(chain[at].kind), needed, given)}};
  }
  return {};
}

std::vector<Violation> check_capacity(const StepPlan& step_plan, const StepShape& shape) {
  std::vector<Violation> found;
  for (size_t replica = 0; replica < step_plan.counts.size(); ++replica) {
    const ReplicaCounts& counts = step_plan.counts[replica];
    const auto within = [&](std::string_view what, int64_t is, int64_t most) {
      if (is > most)
        found.push_back({"step plan", 0,
                         fmt::format("replica {} brings {} {}, admitted are {}", replica, is, what, most)});
    };
    within("requests", counts.num_requests, shape.capacity.max_requests);
    within("target rows", counts.num_target_rows, shape.capacity.max_rows);
    within("draft rows", counts.num_draft_rows, shape.capacity.max_rows);
    within("wanted logits", static_cast<int64_t>(counts.logit_rows.size()), shape.capacity.max_logit_rows);
  }
  return found;
}

std::string to_text(const Violation& violation) {
  std::string where = fmt::format("{}, step {}", violation.edge, violation.step);
  if (!violation.op.empty())
    where +=
        fmt::format(" ({} over {}, ranks {})", violation.op, violation.over, fmt::join(violation.ranks, " "));
  return where + ": " + violation.says;
}

Json to_json(const Violation& violation) {
  return {{"edge", violation.edge}, {"step", violation.step},   {"op", violation.op},
          {"over", violation.over}, {"group", violation.ranks}, {"says", violation.says}};
}

std::vector<Violation> verify(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid,
                              const StepPlan& step_plan, const VerifierOptions& options) {
  if (auto found = check_step_plan(grid, step_plan); !found.empty()) return found;
  if (auto found = check_structure(plan, chain, grid); !found.empty()) return found;
  return Verification(plan, chain, grid, step_plan, options).run();
}

std::vector<StepPlan> probing_step_plans(const StepShape& shape, Forward forward) {
  enum class Logits : uint8_t { kSome, kNone };
  const int32_t most = shape.capacity.max_rows;
  const int32_t quantum = shape.row_quantum();
  const auto counts = [&](int32_t rows, Logits logits) {
    ReplicaCounts mine{.num_requests = std::min(rows, shape.capacity.max_requests)};
    num_rows(mine, forward) = rows;
    // A row that decodes and two prompts, as far as there are rows for them.
    if (forward == Forward::kTarget && rows > 2) mine.prompt_rows = {rows / 3, rows - 1 - rows / 3};
    if (logits == Logits::kNone) return mine;
    // Every other row, and the last one.
    for (int32_t row = rows % 2; row < rows; row += 2) mine.logit_rows.push_back(row);
    if (rows > 0 && (mine.logit_rows.empty() || mine.logit_rows.back() != rows - 1))
      mine.logit_rows.push_back(rows - 1);
    if (static_cast<int32_t>(mine.logit_rows.size()) > shape.capacity.max_logit_rows)
      mine.logit_rows.resize(shape.capacity.max_logit_rows);
    return mine;
  };
  std::vector<StepPlan> plans;
  // Of very many replicas every plan loads the first, the last and another share of those between.
  constexpr int32_t kLoaded = 64;
  const int32_t one_in = (shape.num_replicas + kLoaded - 1) / kLoaded;
  const auto add = [&](auto rows_of_replica, Logits logits = Logits::kSome) {
    std::vector<ReplicaCounts> table;
    const auto turn = static_cast<int32_t>(plans.size());
    for (int32_t replica = 0; replica < shape.num_replicas; ++replica) {
      const bool is_end = replica == 0 || replica == shape.num_replicas - 1;
      const bool is_loaded = is_end || replica % one_in == turn % one_in;
      const int32_t rows = is_loaded ? rows_of_replica(replica) : 0;
      table.push_back(counts(std::min(most, rows), logits));
    }
    plans.push_back(make_step_plan(plans.size(), shape, std::move(table), forward));
    // Any plan must do for any regime: so few rows are shared out as those of a prefill step, too.
    if (shape.row_shares == RowShares::kZigzag && plans.size() % 2 == 0)
      set_regime(plans.back(), shape, Regime::kPrefill);
  };
  add([](int32_t) { return 0; });
  add([&](int32_t replica) { return replica == 0 ? 1 : 0; });
  add([&](int32_t replica) { return replica == shape.num_replicas - 1 ? quantum + 1 : 0; });
  add([](int32_t) { return 1; });
  add([](int32_t replica) { return 3 * (replica % 5) + 1; });
  add([&](int32_t replica) { return replica % 2 == 0 ? 2 * quantum + 1 : 1; });
  add([&](int32_t replica) { return replica % 3 == 1 ? 0 : quantum; });
  add([&](int32_t) { return 4 * quantum; });
  add([&](int32_t replica) { return replica % 2 == 0 ? quantum + 1 : 1; }, Logits::kNone);
  return plans;
}

}  // namespace lockstep::planning
