#pragma once
// Everything that varies from step to step, as one value that every rank shares. One pure function makes it
// from the full table of typed counts; warm-up, tests and real batches all go through it, so what rounds,
// rounds here and nowhere else. The table is never collapsed to one rank's numbers: local numbers are views
// of it.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/planning/rank_grid.h"

namespace lockstep::planning {

// What one attention replica brings to a step. Its rows are numbered in the order of its batch.
struct ReplicaCounts {
  int32_t num_requests = 0;
  int32_t num_target_rows = 0;            // rows of the target model: prompt rows and decode rows
  int32_t num_draft_rows = 0;             // rows of the module that drafts
  std::vector<int32_t> logit_rows;        // ascending: the rows whose logits are wanted
  std::vector<int32_t> prompt_rows = {};  // of each prompt, in order; they are the last of the target rows
};

// Which of a table's rows a step runs.
enum class Forward : uint8_t { kTarget, kDraft };
std::string_view name_of(Forward forward);
constexpr int32_t num_rows(const ReplicaCounts& counts, Forward forward) {
  return forward == Forward::kTarget ? counts.num_target_rows : counts.num_draft_rows;
}
constexpr int32_t& num_rows(ReplicaCounts& counts, Forward forward) {
  return forward == Forward::kTarget ? counts.num_target_rows : counts.num_draft_rows;
}

// Limits from admission, the same for the scheduler, the allocator and the validator. Per replica and step.
struct Capacity {
  int32_t max_requests = 1;     // running requests of one replica
  int32_t max_rows = 1;         // padded rows of one replica; a multiple of the quantum
  int32_t max_decode_rows = 1;  // padded rows up to which the decode plan is used; a multiple of the quantum
  int32_t max_logit_rows = 1;
  // Padded rows up to which the plan for small decode steps is used; a multiple of the quantum; 0: never.
  int32_t max_small_decode_rows = 0;
};

// Which of the three plans a step runs: by the replica with the most padded rows.
enum class Regime : uint8_t { kDecodeSmall, kDecode, kPrefill };
std::string_view name_of(Regime regime);
Regime regime_of(const Capacity& capacity, int32_t most_padded_rows);

// How experts exchange rows: with few rows slots are sent whether they are full or not, with many they are
// counted first.
enum class Protocol : uint8_t { kLowLatency, kNormal };
Protocol protocol_of(Regime regime);

struct StepShape {
  int32_t num_replicas = 1;
  int32_t ranks_per_replica = 1;  // A; the row quantum
  Capacity capacity;
  // Padded rows of a replica for which a graph was captured: ascending multiples of the quantum, the last not
  // below max_decode_rows. Empty: every step is run as it comes.
  std::vector<int32_t> buckets = {};
  int32_t context_ranks = 1;  // C: that share out a replica's rows, and how
  RowShares row_shares = RowShares::kContiguous;
  int32_t row_quantum() const { return ranks_per_replica; }
};

struct StepPlan {
  uint64_t step = 0;
  Regime regime = Regime::kDecode;
  Protocol protocol = Protocol::kLowLatency;
  int32_t bucket = 0;  // padded rows of every replica in a step that replays a graph; 0: no graph
  Forward forward = Forward::kTarget;
  std::vector<ReplicaCounts> counts;  // [replicas]
  std::vector<int32_t>
      padded_rows;  // [replicas] rows rounded up to the quantum, or the bucket; else 0 where idle
  std::vector<int32_t> rows_per_home;        // [ranks] padded rows of each home rank
  std::vector<int32_t> logit_rows_per_home;  // [ranks] wanted rows of each home rank; not padded
  int32_t max_rows_of_any_home = 0;          // the geometry of an exchange with fixed slots
  // [replicas] of [rows]: where each row of the batch stands among its replica's; empty where they stand in
  // order, which is everywhere but in prefill steps of ranks that share rows in zigzag.
  std::vector<std::vector<int32_t>> places = {};
  uint64_t hash = 0;  // of everything above
};
uint64_t hash_of(const StepPlan& plan);  // of every field but the hash

int32_t round_up(int32_t value, int32_t quantum);
StepShape step_shape(const RankGrid& grid, const Capacity& capacity);

// Counts above the capacity, logit rows out of order or out of range are bugs of the caller (Fatal with both
// values).
StepPlan make_step_plan(uint64_t step, const StepShape& shape, std::vector<ReplicaCounts> counts,
                        Forward forward = Forward::kTarget);

// As which regime a step is run. Places of rows follow from it, and the homes of wanted rows from those.
void set_regime(StepPlan& plan, const StepShape& shape, Regime regime);

// Where `num_rows` rows stand of which the last are prompts: of every prompt each of the ranks has an early
// run and a late one, as many rows in all as there are places of real rows among its share of the padded
// ones.
std::vector<int32_t> zigzag_places(int32_t num_rows, std::span<const int32_t> prompt_rows,
                                   int32_t padded_rows, int32_t context_ranks);
int32_t place_of(const StepPlan& plan, int32_t replica, int32_t row);
// The rows of a replica in the order of their places: all, or those whose logits are wanted.
std::vector<int32_t> rows_by_place(const StepPlan& plan, int32_t replica);
std::vector<int32_t> wanted_by_place(const StepPlan& plan, int32_t replica);

// The home rank of row `row` of `replica`, and the place of the row among its home's rows.
struct HomeRow {
  int32_t home = 0, row = 0;
};
HomeRow home_of(const StepPlan& plan, const StepShape& shape, int32_t replica, int32_t row);

}  // namespace lockstep::planning
