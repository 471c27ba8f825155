#include "lockstep/planning/step_plan.h"

#include <algorithm>

#include "lockstep/base/hash.h"

namespace lockstep::planning {
namespace {

void check_counts(const StepShape& shape, const ReplicaCounts& counts, Forward forward) {
  LOCKSTEP_CHECK_GE(counts.num_requests, 0);
  LOCKSTEP_CHECK_GE(counts.num_target_rows, 0);
  LOCKSTEP_CHECK_GE(counts.num_draft_rows, 0);
  LOCKSTEP_CHECK_LE(counts.num_requests, shape.capacity.max_requests);
  // Before it is rounded: counts come from other hosts, and the sum must not overflow.
  const int32_t rows = num_rows(counts, forward);
  LOCKSTEP_CHECK_LE(counts.num_target_rows, shape.capacity.max_rows);
  LOCKSTEP_CHECK_LE(counts.num_draft_rows, shape.capacity.max_rows);
  LOCKSTEP_CHECK_LE(round_up(rows, shape.row_quantum()), shape.capacity.max_rows);
  LOCKSTEP_CHECK_LE(static_cast<int32_t>(counts.logit_rows.size()), shape.capacity.max_logit_rows);
  int32_t previous = -1;
  for (const int32_t row : counts.logit_rows) {
    LOCKSTEP_CHECK_LT(previous, row);
    LOCKSTEP_CHECK_LT(row, rows);
    previous = row;
  }
}

// The smallest captured graph that has room for every replica; 0 where none is replayed.
int32_t bucket_of(const StepShape& shape, Regime regime, int32_t most_padded_rows) {
  if (regime == Regime::kPrefill || most_padded_rows == 0) return 0;
  for (const int32_t bucket : shape.buckets) {
    LOCKSTEP_CHECK_EQ(bucket % shape.row_quantum(), 0);
    if (bucket >= most_padded_rows) return bucket;
  }
  return 0;
}

}  // namespace

uint64_t hash_of(const StepPlan& plan) {
  Hasher hasher;
  const auto add = [&](int32_t number) { hasher.add(static_cast<uint64_t>(number)); };
  const auto add_all = [&](const std::vector<int32_t>& numbers) {
    hasher.add(numbers.size());
    for (const int32_t number : numbers) add(number);
  };
  hasher.add(plan.step).add(static_cast<uint64_t>(plan.regime)).add(static_cast<uint64_t>(plan.protocol));
  add(plan.bucket);
  hasher.add(static_cast<uint64_t>(plan.forward));
  hasher.add(plan.counts.size());
  for (const ReplicaCounts& counts : plan.counts) {
    add(counts.num_requests);
    add(counts.num_target_rows);
    add(counts.num_draft_rows);
    add_all(counts.logit_rows);
  }
  add_all(plan.padded_rows);
  add_all(plan.rows_per_home);
  add_all(plan.logit_rows_per_home);
  add(plan.max_rows_of_any_home);
  return hasher.value();
}

int32_t round_up(int32_t value, int32_t quantum) { return (value + quantum - 1) / quantum * quantum; }

StepShape step_shape(const RankGrid& grid, const Capacity& capacity) {
  return {.num_replicas = grid.num_replicas(),
          .ranks_per_replica = grid.shape().attention_tp,
          .capacity = capacity};
}

std::string_view name_of(Regime regime) {
  switch (regime) {
    case Regime::kDecodeSmall:
      return "decode_small";
    case Regime::kDecode:
      return "decode";
    case Regime::kPrefill:
      return "prefill";
  }
  return "?";
}

std::string_view name_of(Forward forward) { return forward == Forward::kTarget ? "target" : "draft"; }

Regime regime_of(const Capacity& capacity, int32_t most_padded_rows) {
  if (most_padded_rows > capacity.max_decode_rows) return Regime::kPrefill;
  const bool is_small =
      capacity.max_small_decode_rows > 0 && most_padded_rows <= capacity.max_small_decode_rows;
  return is_small ? Regime::kDecodeSmall : Regime::kDecode;
}

Protocol protocol_of(Regime regime) {
  return regime == Regime::kPrefill ? Protocol::kNormal : Protocol::kLowLatency;
}

StepPlan make_step_plan(uint64_t step, const StepShape& shape, std::vector<ReplicaCounts> counts,
                        Forward forward) {
  LOCKSTEP_CHECK_EQ(static_cast<int32_t>(counts.size()), shape.num_replicas);
  StepPlan plan{.step = step, .forward = forward, .counts = std::move(counts)};
  const int32_t ranks = shape.ranks_per_replica;
  int32_t most = 0;
  for (const ReplicaCounts& mine : plan.counts) {
    check_counts(shape, mine, forward);
    plan.padded_rows.push_back(round_up(num_rows(mine, forward), shape.row_quantum()));
    most = std::max(most, plan.padded_rows.back());
  }
  plan.regime = regime_of(shape.capacity, most);
  plan.protocol = protocol_of(plan.regime);
  plan.bucket = bucket_of(shape, plan.regime, most);
  if (plan.bucket > 0) plan.padded_rows.assign(plan.counts.size(), plan.bucket);
  plan.logit_rows_per_home.assign(static_cast<size_t>(shape.num_replicas) * ranks, 0);
  for (int32_t replica = 0; replica < shape.num_replicas; ++replica) {
    const int32_t per_home = plan.padded_rows[replica] / ranks;
    plan.rows_per_home.insert(plan.rows_per_home.end(), ranks, per_home);
    for (const int32_t row : plan.counts[replica].logit_rows)
      ++plan.logit_rows_per_home[replica * ranks + row / per_home];
    plan.max_rows_of_any_home = std::max(plan.max_rows_of_any_home, per_home);
  }
  plan.hash = hash_of(plan);
  return plan;
}

HomeRow home_of(const StepPlan& plan, const StepShape& shape, int32_t replica, int32_t row) {
  LOCKSTEP_CHECK_GE(replica, 0);
  LOCKSTEP_CHECK_LT(replica, shape.num_replicas);
  LOCKSTEP_CHECK_GE(row, 0);
  LOCKSTEP_CHECK_LT(row, plan.padded_rows[replica]);
  const int32_t per_home = plan.padded_rows[replica] / shape.ranks_per_replica;
  return {.home = replica * shape.ranks_per_replica + row / per_home, .row = row % per_home};
}

}  // namespace lockstep::planning
