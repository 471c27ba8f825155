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
  int64_t of_prompts = 0;
  for (const int32_t of_prompt : counts.prompt_rows) {
    LOCKSTEP_CHECK_GE(of_prompt, 1);
    of_prompts += of_prompt;
  }
  LOCKSTEP_CHECK_LE(of_prompts, int64_t{counts.num_target_rows});
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
    add_all(counts.prompt_rows);
  }
  add_all(plan.padded_rows);
  add_all(plan.rows_per_home);
  add_all(plan.logit_rows_per_home);
  add(plan.max_rows_of_any_home);
  hasher.add(plan.places.size());
  for (const std::vector<int32_t>& places : plan.places) add_all(places);
  return hasher.value();
}

int32_t round_up(int32_t value, int32_t quantum) { return (value + quantum - 1) / quantum * quantum; }

StepShape step_shape(const RankGrid& grid, const Capacity& capacity) {
  return {.num_replicas = grid.num_replicas(),
          .ranks_per_replica = grid.shape().attention_tp,
          .capacity = capacity,
          .context_ranks = grid.shape().attn_cp,
          .row_shares = grid.shape().row_shares};
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
  const Regime regime = regime_of(shape.capacity, most);
  plan.bucket = bucket_of(shape, regime, most);
  if (plan.bucket > 0) plan.padded_rows.assign(plan.counts.size(), plan.bucket);
  for (int32_t replica = 0; replica < shape.num_replicas; ++replica) {
    const int32_t per_home = plan.padded_rows[replica] / ranks;
    plan.rows_per_home.insert(plan.rows_per_home.end(), ranks, per_home);
    plan.max_rows_of_any_home = std::max(plan.max_rows_of_any_home, per_home);
  }
  set_regime(plan, shape, regime);
  return plan;
}

void set_regime(StepPlan& plan, const StepShape& shape, Regime regime) {
  plan.regime = regime;
  plan.protocol = protocol_of(regime);
  plan.places.clear();
  plan.logit_rows_per_home.assign(plan.rows_per_home.size(), 0);
  const bool is_zigzag = shape.row_shares == RowShares::kZigzag && shape.context_ranks > 1 &&
                         regime == Regime::kPrefill && plan.forward == Forward::kTarget;
  for (int32_t replica = 0; replica < shape.num_replicas; ++replica) {
    const ReplicaCounts& counts = plan.counts[replica];
    if (is_zigzag)
      plan.places.push_back(zigzag_places(counts.num_target_rows, counts.prompt_rows,
                                          plan.padded_rows[replica], shape.context_ranks));
    for (const int32_t row : counts.logit_rows)
      ++plan.logit_rows_per_home[home_of(plan, shape, replica, row).home];
  }
  plan.hash = hash_of(plan);
}

std::vector<int32_t> zigzag_places(int32_t num_rows, std::span<const int32_t> prompt_rows,
                                   int32_t padded_rows, int32_t context_ranks) {
  const auto ranks = static_cast<size_t>(context_ranks);
  const int32_t share = padded_rows / context_ranks;
  int32_t row = num_rows;
  for (const int32_t rows : prompt_rows) row -= rows;
  std::vector<int32_t> places(static_cast<size_t>(num_rows));
  for (int32_t before = 0; before < row; ++before) places[static_cast<size_t>(before)] = before;
  // The next free place of each rank, and how many it has left.
  std::vector<int32_t> next(ranks), left(ranks), quota(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int32_t first = static_cast<int32_t>(rank) * share, end = std::min(first + share, num_rows);
    next[rank] = std::max(first, row);
    left[rank] = std::max(0, end - next[rank]);
  }
  int64_t all_left = num_rows - row;
  for (const int32_t rows : prompt_rows) {
    if (rows < 1) continue;
    int32_t to_give = rows;
    for (size_t rank = 0; rank < ranks; ++rank) {
      quota[rank] = static_cast<int32_t>(int64_t{rows} * left[rank] / all_left);
      to_give -= quota[rank];
    }
    // What rounding left goes to those who have most room, the first of them first.
    for (; to_give > 0; --to_give) {
      size_t most = 0;
      for (size_t rank = 1; rank < ranks; ++rank)
        if (left[rank] - quota[rank] > left[most] - quota[most]) most = rank;
      ++quota[most];
    }
    const auto take = [&](size_t rank, int32_t count) {
      for (int32_t i = 0; i < count; ++i) places[static_cast<size_t>(row++)] = next[rank]++;
    };
    for (size_t rank = 0; rank < ranks; ++rank) take(rank, quota[rank] - quota[rank] / 2);
    for (size_t rank = ranks; rank-- > 0;) take(rank, quota[rank] / 2);
    for (size_t rank = 0; rank < ranks; ++rank) left[rank] -= quota[rank];
    all_left -= rows;
  }
  return places;
}

int32_t place_of(const StepPlan& plan, int32_t replica, int32_t row) {
  return plan.places.empty() ? row
                             : plan.places.at(static_cast<size_t>(replica)).at(static_cast<size_t>(row));
}

std::vector<int32_t> rows_by_place(const StepPlan& plan, int32_t replica) {
  std::vector<int32_t> rows(static_cast<size_t>(num_rows(plan.counts[replica], plan.forward)));
  for (int32_t row = 0; row < static_cast<int32_t>(rows.size()); ++row)
    rows[static_cast<size_t>(place_of(plan, replica, row))] = row;
  return rows;
}

std::vector<int32_t> wanted_by_place(const StepPlan& plan, int32_t replica) {
  std::vector<int32_t> rows = plan.counts[replica].logit_rows;
  if (!plan.places.empty())
    std::sort(rows.begin(), rows.end(),
              [&](int32_t a, int32_t b) { return place_of(plan, replica, a) < place_of(plan, replica, b); });
  return rows;
}

HomeRow home_of(const StepPlan& plan, const StepShape& shape, int32_t replica, int32_t row) {
  LOCKSTEP_CHECK_GE(replica, 0);
  LOCKSTEP_CHECK_LT(replica, shape.num_replicas);
  LOCKSTEP_CHECK_GE(row, 0);
  LOCKSTEP_CHECK_LT(row, plan.padded_rows[replica]);
  const int32_t per_home = plan.padded_rows[replica] / shape.ranks_per_replica;
  const int32_t place =
      row < num_rows(plan.counts[replica], plan.forward) ? place_of(plan, replica, row) : row;
  return {.home = replica * shape.ranks_per_replica + place / per_home, .row = place % per_home};
}

}  // namespace lockstep::planning
