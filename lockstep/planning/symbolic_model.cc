#include "lockstep/planning/symbolic_model.h"

#include <algorithm>

namespace lockstep::planning::symbolic {

uint64_t addend(uint64_t value, int index, int size) {
  if (index > 0) return mix(value, index);
  uint64_t rest = value;
  for (int other = 1; other < size; ++other) rest -= mix(value, other);
  return rest;
}

std::vector<Route> routes(int layer, uint64_t x, const VerifierOptions& options) {
  std::vector<Route> chosen;
  const int first = static_cast<int>(mix(7000 + layer, x) % options.num_experts);
  for (int k = 0; k < std::min(options.top_k, options.num_experts); ++k)
    chosen.push_back({(first + k) % options.num_experts, mix(x, 8000 + k) | 1});
  return chosen;
}

bool is_padding(const StepPlan& plan, const RankGrid& grid, RowKey key) {
  const int replica = grid.replica_of(key.home);
  const int place = key.home % grid.shape().attention_tp;
  return place * plan.rows_per_home[key.home] + key.row >= plan.counts[replica].num_target_rows;
}

bool is_wanted(const StepPlan& plan, const RankGrid& grid, RowKey key) {
  const int place = key.home % grid.shape().attention_tp;
  const auto& wanted = plan.counts[grid.replica_of(key.home)].logit_rows;
  return std::binary_search(wanted.begin(), wanted.end(), place * plan.rows_per_home[key.home] + key.row);
}

uint64_t fold_columns(const std::vector<uint64_t>& columns) {
  uint64_t folded = 0;
  for (const uint64_t column : columns) folded = mix(folded, column);
  return folded;
}

int num_head_columns(const Plan& plan, const RankGrid& grid) {
  return plan.edges.empty() ? 1 : grid.size(plan.edges.back().given.axes_with(Placement::kColumns, grid));
}

namespace {

// The rows of one replica, in order, on the one rank.
class OneReplica {
 public:
  OneReplica(std::vector<RowKey> keys, const VerifierOptions& options)
      : keys_(std::move(keys)), options_(options) {
    for (const RowKey key : keys_) values_.push_back(embedding(key, options.seed));
    residual_.assign(keys_.size(), 0);
  }

  void run(const Plan& plan, int num_columns, const StepPlan& step_plan, const RankGrid& grid,
           Expected& out) {
    for (size_t at = 0; at < plan.edges.size(); ++at) {
      const Edge& edge = plan.edges[at];
      if (edge.to.kind == StageKind::kSampler) {
        for (size_t i = 0; i < keys_.size(); ++i)
          if (is_wanted(step_plan, grid, keys_[i])) out.logits[keys_[i]] = logits(values_[i], num_columns);
        return;
      }
      for (size_t i = 0; i < keys_.size(); ++i) {
        residual_[i] += values_[i];
        out.residual[at][keys_[i]] = residual_[i];
        values_[i] = norm(at, residual_[i]);
        out.hidden[at][keys_[i]] = values_[i];
      }
      if (edge.to.kind != StageKind::kHead) run_stage(edge.to);
    }
  }

 private:
  static uint64_t logits(uint64_t x, int num_columns) {
    std::vector<uint64_t> columns;
    for (int column = 0; column < num_columns; ++column) columns.push_back(head_column(x, column));
    return fold_columns(columns);
  }

  void run_stage(StageRef stage) {
    uint64_t state = 0;
    for (uint64_t& x : values_) {
      if (stage.kind == StageKind::kAttention) {
        state = attention_state(state, x);
        x = attention(stage.layer, state);
      } else if (stage.kind == StageKind::kDense) {
        x = dense(stage.layer, x);
      } else {
        uint64_t sum = shared_expert(stage.layer, x);
        for (const Route& route : routes(stage.layer, x, options_))
          sum += route.weight * expert(stage.layer, route.expert, x);
        x = sum;
      }
    }
  }

  std::vector<RowKey> keys_;
  std::vector<uint64_t> values_, residual_;
  const VerifierOptions& options_;
};

}  // namespace

Expected run_on_one_rank(const Plan& plan, const RankGrid& grid, const StepPlan& step_plan,
                         const VerifierOptions& options) {
  Expected expected;
  expected.hidden.resize(plan.edges.size());
  expected.residual.resize(plan.edges.size());
  for (int replica = 0; replica < grid.num_replicas(); ++replica) {
    std::vector<RowKey> keys;
    for (int home = 0; home < grid.num_ranks(); ++home)
      for (int32_t row = 0; grid.replica_of(home) == replica && row < step_plan.rows_per_home[home]; ++row)
        if (const RowKey key{home, row}; !is_padding(step_plan, grid, key)) keys.push_back(key);
    OneReplica(std::move(keys), options).run(plan, num_head_columns(plan, grid), step_plan, grid, expected);
  }
  return expected;
}

}  // namespace lockstep::planning::symbolic
