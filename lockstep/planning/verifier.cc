#include "lockstep/planning/verifier.h"

#include <algorithm>

#include "lockstep/planning/symbolic_ranks.h"

namespace lockstep::planning {
namespace {

using symbolic::Held;
using symbolic::RowKey;

class Verification {
 public:
  Verification(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid,
               const StepPlan& step_plan, const VerifierOptions& options)
      : plan_(plan),
        chain_(chain),
        grid_(grid),
        step_plan_(step_plan),
        ranks_(grid, step_plan, options),
        expected_(symbolic::run_on_one_rank(plan, grid, step_plan, options)) {}

  std::vector<Violation> run() {
    if (plan_.edges.size() + 1 != chain_.size()) {
      found_.push_back({"", 0, fmt::format("{} edges for {} stages", plan_.edges.size(), chain_.size())});
      return found_;
    }
    const Signature* first = signature_of(0);
    if (first != nullptr) ranks_.embed(*first);
    for (size_t at = 0; at < plan_.edges.size() && found_.empty(); ++at) run_edge(at);
    return found_;
  }

 private:
  void report(size_t edge, uint32_t step, std::string says) {
    const Edge& where = plan_.edges[edge];
    found_.push_back({to_text(where.from) + " -> " + to_text(where.to), step, std::move(says)});
  }

  // The declared signature by which stage `at` runs in this plan: what it needs, what it gives, how it
  // exchanges.
  const Signature* signature_of(size_t at) {
    const Edge* in = at > 0 ? &plan_.edges[at - 1] : nullptr;
    const Edge* out = at < plan_.edges.size() ? &plan_.edges[at] : nullptr;
    for (const Signature& signature : chain_[at].signatures)
      if ((in == nullptr || in->needed == signature.needs) &&
          (out == nullptr || out->given == signature.gives))
        return &signature;
    report(std::min(at, plan_.edges.size() - 1), 0,
           fmt::format("{} is declared with no signature that needs {} and gives {}",
                       name_of(chain_[at].kind), in != nullptr ? to_text(in->needed, grid_) : "nothing",
                       out != nullptr ? to_text(out->given, grid_) : "nothing"));
    return nullptr;
  }

  void run_edge(size_t at) {
    const Edge& edge = plan_.edges[at];
    if (edge.to != StageRef{chain_[at + 1].kind, chain_[at + 1].layer} ||
        edge.from != StageRef{chain_[at].kind, chain_[at].layer})
      return report(at, 0, "it joins other stages than the chain does");
    uint32_t step_id = 0;
    try {
      for (const Step& step : edge.steps) {
        step_id = step.id;
        ranks_.run_step(step, at);
      }
      ranks_.finish_edge(edge);
    } catch (const symbolic::Misstep& misstep) {
      return report(at, step_id, misstep.what());
    }
    check_rows(at, step_id);
    if (!found_.empty()) return;
    const Signature* signature = signature_of(at + 1);
    if (signature == nullptr || edge.to.kind == StageKind::kSampler) return;
    try {
      ranks_.run_stage(chain_[at + 1], *signature);
    } catch (const symbolic::Misstep& misstep) {
      report(at, step_id, misstep.what());
    }
  }

  void check_rows(size_t at, uint32_t step) {
    const Edge& edge = plan_.edges[at];
    const bool selected = edge.to.kind == StageKind::kHead || edge.to.kind == StageKind::kSampler;
    if (ranks_.hidden_layout() != edge.needed)
      return report(at, step,
                    fmt::format("hidden ends as {}, needed is {}", to_text(ranks_.hidden_layout(), grid_),
                                to_text(edge.needed, grid_)));
    const auto& counts = selected ? step_plan_.logit_rows_per_home : step_plan_.rows_per_home;
    for (int rank = 0; rank < grid_.num_ranks() && found_.empty(); ++rank) {
      const auto held = static_cast<int64_t>(ranks_.hidden(rank).keys.size());
      const int64_t wanted = num_rows_of(edge.needed, rank, grid_, counts);
      if (held != wanted)
        return report(at, step, fmt::format("rank {} holds {} rows, needed are {}", rank, held, wanted));
      if (edge.to.kind == StageKind::kSampler) {
        check_values(at, step, rank, ranks_.hidden(rank), expected_.logits, "logits");
      } else {
        check_values(at, step, rank, ranks_.hidden(rank), expected_.hidden[at], "hidden");
        check_values(at, step, rank, ranks_.residual(rank), expected_.residual[at], "residual");
      }
    }
  }

  void check_values(size_t at, uint32_t step, int rank, const Held& held,
                    const std::map<RowKey, uint64_t>& expected, std::string_view what) {
    for (size_t i = 0; i < held.keys.size(); ++i) {
      const RowKey key = held.keys[i];
      if (symbolic::is_padding(step_plan_, grid_, key)) continue;
      const uint64_t value = what == "logits" ? symbolic::fold_columns(held.values[i]) : held.values[i][0];
      if (const auto right = expected.find(key); right == expected.end() || right->second != value)
        return report(
            at, step,
            fmt::format("{} of row {} of home {} is {:016x} on rank {}, on one rank it is {:016x}", what,
                        key.row, key.home, value, rank, right == expected.end() ? 0 : right->second));
    }
  }

  const Plan& plan_;
  std::span<const Stage> chain_;
  const RankGrid& grid_;
  const StepPlan& step_plan_;
  symbolic::Ranks ranks_;
  symbolic::Expected expected_;
  std::vector<Violation> found_;
};

// Is the step plan what its own counts say? A plan that was made from one rank's numbers is found here.
std::vector<Violation> check_step_plan(const RankGrid& grid, const StepPlan& plan) {
  std::vector<Violation> found;
  const int32_t quantum = grid.shape().attention_tp;
  const auto expect = [&](std::string_view what, int64_t is, int64_t should) {
    if (is != should && found.empty())
      found.push_back({"step plan", 0, fmt::format("{} is {}, the counts say {}", what, is, should)});
  };
  expect("number of replicas", static_cast<int64_t>(plan.counts.size()), grid.num_replicas());
  expect("number of padded counts", static_cast<int64_t>(plan.padded_rows.size()), grid.num_replicas());
  expect("number of homes", static_cast<int64_t>(plan.rows_per_home.size()), grid.num_ranks());
  expect("number of logit homes", static_cast<int64_t>(plan.logit_rows_per_home.size()), grid.num_ranks());
  if (!found.empty()) return found;
  int32_t most = 0;
  for (int rank = 0; rank < grid.num_ranks(); ++rank) {
    const int replica = grid.replica_of(rank);
    const int32_t padded = round_up(plan.counts[replica].num_target_rows, quantum);
    expect("padded rows", plan.padded_rows[replica], padded);
    expect("rows of a home", plan.rows_per_home[rank], padded / quantum);
    const int32_t first = rank % quantum * (padded / quantum), last = first + padded / quantum;
    const auto& wanted = plan.counts[replica].logit_rows;
    expect(
        "logit rows of a home", plan.logit_rows_per_home[rank],
        std::count_if(wanted.begin(), wanted.end(), [&](int32_t row) { return row >= first && row < last; }));
    most = std::max(most, padded / quantum);
  }
  expect("most rows of any home", plan.max_rows_of_any_home, most);
  return found;
}

}  // namespace

std::vector<Violation> verify(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid,
                              const StepPlan& step_plan, const VerifierOptions& options) {
  if (auto found = check_step_plan(grid, step_plan); !found.empty()) return found;
  return Verification(plan, chain, grid, step_plan, options).run();
}

std::vector<StepPlan> probing_step_plans(const StepShape& shape) {
  const int32_t most = shape.capacity.max_rows;
  const int32_t quantum = shape.row_quantum();
  const auto counts = [&](int32_t rows) {
    ReplicaCounts mine{.num_requests = std::min(rows, shape.capacity.max_requests), .num_target_rows = rows};
    // Every other row, and the last one.
    for (int32_t row = rows % 2; row < rows; row += 2) mine.logit_rows.push_back(row);
    if (rows > 0 && (mine.logit_rows.empty() || mine.logit_rows.back() != rows - 1))
      mine.logit_rows.push_back(rows - 1);
    if (static_cast<int32_t>(mine.logit_rows.size()) > shape.capacity.max_logit_rows)
      mine.logit_rows.resize(shape.capacity.max_logit_rows);
    return mine;
  };
  const auto fit = [&](int32_t rows) { return std::min(rows, most); };
  std::vector<StepPlan> plans;
  const auto add = [&](auto rows_of_replica) {
    std::vector<ReplicaCounts> table;
    for (int32_t replica = 0; replica < shape.num_replicas; ++replica)
      table.push_back(counts(fit(rows_of_replica(replica))));
    plans.push_back(make_step_plan(plans.size(), shape, std::move(table)));
  };
  add([](int32_t) { return 0; });
  add([&](int32_t replica) { return replica == 0 ? 1 : 0; });
  add([&](int32_t replica) { return replica == shape.num_replicas - 1 ? quantum + 1 : 0; });
  add([](int32_t) { return 1; });
  add([](int32_t replica) { return 3 * replica + 1; });
  add([&](int32_t replica) { return replica % 2 == 0 ? 2 * quantum + 1 : 1; });
  add([&](int32_t replica) { return replica % 3 == 1 ? 0 : quantum; });
  add([&](int32_t) { return std::min(most, 4 * quantum); });
  return plans;
}

}  // namespace lockstep::planning
