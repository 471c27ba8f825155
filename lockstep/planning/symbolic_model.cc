#include "lockstep/planning/symbolic_model.h"

#include <algorithm>

namespace lockstep::planning::symbolic {

RowTable::RowTable(const StepPlan& step_plan, const RankGrid& grid) {
  max_rows_of_any_home = step_plan.max_rows_of_any_home;
  first_of_home.push_back(0);
  stands_in_order = step_plan.places.empty();
  std::vector<int32_t> row_at;  // of the replica, by place
  for (int home = 0; home < grid.num_ranks(); ++home) {
    if (!stands_in_order && home % grid.shape().attention_tp == 0)
      row_at = rows_by_place(step_plan, grid.replica_of(home));
    const ReplicaCounts& counts = step_plan.counts[grid.replica_of(home)];
    const int32_t held = step_plan.rows_per_home[home];
    for (int32_t place = 0; place < held; ++place) {
      int32_t row = home % grid.shape().attention_tp * held + place;  // of the replica
      if (!stands_in_order && row < static_cast<int32_t>(row_at.size())) row = row_at[row];
      const bool wanted = std::binary_search(counts.logit_rows.begin(), counts.logit_rows.end(), row);
      rows.push_back({home, place, row >= num_rows(counts, step_plan.forward), wanted, row});
    }
    first_of_home.push_back(static_cast<RowId>(rows.size()));
  }
}

std::vector<size_t> RowTable::in_order(std::span<const RowId> of) const {
  std::vector<size_t> order(of.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (!stands_in_order)
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return rows[of[a]].order < rows[of[b]].order; });
  return order;
}

std::string RowTable::name_of(RowId row) const {
  return fmt::format("row {} of home {}", rows[row].place, rows[row].home);
}

uint64_t addend(uint64_t value, int index, int size) {
  if (index > 0) return mix(value, index);
  uint64_t rest = value;
  for (int other = 1; other < size; ++other) rest -= mix(value, other);
  return rest;
}

int num_experts(const RankGrid& grid, const VerifierOptions& options) {
  if (options.num_experts > 0) return options.num_experts;
  return (3 * grid.size(grid.expert_parallel()) + 1) / 2;
}

void routes(int layer, uint64_t x, int num_experts, const VerifierOptions& options,
            std::vector<Route>& chosen) {
  chosen.clear();
  const int first = static_cast<int>(mix(7000 + layer, x) % num_experts);
  for (int k = 0; k < std::min(options.top_k, num_experts); ++k)
    chosen.push_back({(first + k) % num_experts, mix(x, 8000 + k) | 1});
}

uint64_t fold_columns(std::span<const uint64_t> columns) {
  uint64_t folded = 0;
  for (const uint64_t column : columns) folded = mix(folded, column);
  return folded;
}

namespace {

// The real rows of one replica, in order, on the one rank.
class OneReplica {
 public:
  OneReplica(std::vector<RowId> rows, int num_experts, const VerifierOptions& options)
      : rows_(std::move(rows)), num_experts_(num_experts), options_(options) {
    for (const RowId row : rows_) values_.push_back(embedding(row, options.seed));
    residual_.assign(rows_.size(), 0);
  }

  void run(std::span<const Stage> chain, int num_columns, Expected& out) {
    for (size_t at = 0; at + 1 < chain.size(); ++at) {
      const Stage& to = chain[at + 1];
      if (to.kind == StageKind::kSampler) {
        for (size_t i = 0; i < rows_.size(); ++i) out.logits[rows_[i]] = logits(values_[i], num_columns);
        return;
      }
      const bool seeds = chain[at].kind == StageKind::kEmbedding || chain[at].kind == StageKind::kJoin;
      for (size_t i = 0; i < rows_.size(); ++i) {
        if (chain[at].kind != StageKind::kTap && chain[at].kind != StageKind::kLatents) {
          residual_[i] = (seeds ? 0 : residual_[i]) + values_[i];
          values_[i] = norm(at, residual_[i]);
        }
        out.residual[at][rows_[i]] = residual_[i];
        out.hidden[at][rows_[i]] = values_[i];
      }
      if (to.kind != StageKind::kHead) run_stage(to);
    }
  }

 private:
  static uint64_t logits(uint64_t x, int num_columns) {
    std::vector<uint64_t> columns;
    for (int column = 0; column < num_columns; ++column) columns.push_back(head_column(x, column));
    return fold_columns(columns);
  }

  void run_stage(const Stage& stage) {
    if (stage.kind == StageKind::kTap) return;
    if (stage.kind == StageKind::kJoin) {
      for (size_t i = 0; i < rows_.size(); ++i) values_[i] = join(values_[i], kept(rows_[i], options_.seed));
      return;
    }
    uint64_t state = 0;
    for (uint64_t& x : values_) {
      if (stage.kind == StageKind::kAttention) {
        state = attention_state(state, x);
        x = attention(stage.layer, state);
      } else if (stage.kind == StageKind::kLatents) {
        x = latents(stage.layer, x);
      } else if (stage.kind == StageKind::kDense) {
        x = dense(stage.layer, x);
      } else {
        uint64_t sum = shared_expert(stage.layer, x);
        routes(stage.layer, x, num_experts_, options_, chosen_);
        for (const Route& route : chosen_) sum += route.weight * expert(stage.layer, route.expert, x);
        x = sum;
      }
    }
  }

  std::vector<RowId> rows_;
  std::vector<uint64_t> values_, residual_;
  std::vector<Route> chosen_;
  const int num_experts_;
  const VerifierOptions& options_;
};

}  // namespace

Expected run_on_one_rank(std::span<const Stage> chain, int num_head_columns, const RankGrid& grid,
                         const RowTable& table, const VerifierOptions& options) {
  Expected expected;
  const size_t num_edges = chain.empty() ? 0 : chain.size() - 1;
  expected.hidden.assign(num_edges, std::vector<uint64_t>(table.rows.size()));
  expected.residual = expected.hidden;
  expected.logits.resize(table.rows.size());
  const int width = grid.shape().attention_tp;
  for (int replica = 0; replica < grid.num_replicas(); ++replica) {
    std::vector<RowId> rows;
    for (RowId row = table.first_of_home[replica * width]; row < table.first_of_home[(replica + 1) * width];
         ++row)
      if (!table.rows[row].padding) rows.push_back(row);
    if (!table.stands_in_order)
      std::sort(rows.begin(), rows.end(),
                [&](RowId a, RowId b) { return table.rows[a].order < table.rows[b].order; });
    OneReplica(std::move(rows), num_experts(grid, options), options).run(chain, num_head_columns, expected);
  }
  return expected;
}

}  // namespace lockstep::planning::symbolic
