#pragma once
// The model that the verifier runs: rows are exact 64-bit integers, stages are mixing functions of them (so a
// missing, a doubled or a misplaced addend changes every later value), sums wrap around and are therefore
// exact in any order. Internal to planning: only the verifier includes it.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/planning/step_plan.h"
#include "lockstep/planning/verifier.h"

namespace lockstep::planning::symbolic {

// A row of a step, by number: home ranks ascending, each home's rows in their order.
using RowId = int32_t;

struct Row {
  int32_t home = 0, place = 0;  // its place among its home's rows
  bool padding = false, wanted = false;
  int32_t order = 0;  // in its replica's batch, whose earlier rows it may see
};

// All rows of a step.
struct RowTable {
  RowTable(const StepPlan& step_plan, const RankGrid& grid);
  std::string name_of(RowId row) const;  // "row 1 of home 2"

  std::vector<Row> rows;
  std::vector<RowId> first_of_home;  // [ranks + 1]
  bool stands_in_order = true;       // every row behind those that it sees
  // These rows of one replica as attention meets them.
  std::vector<size_t> in_order(std::span<const RowId> rows) const;
  int64_t max_rows_of_any_home = 0;
};

struct Route {
  int expert = 0;
  uint64_t weight = 0;
};

inline uint64_t mix(uint64_t a, uint64_t b) { return mix64(mix64(a) ^ (b + 0x51ed270b)); }

inline uint64_t embedding(RowId row, uint64_t seed) { return mix(seed, row); }
inline uint64_t norm(size_t edge, uint64_t residual) { return mix(1000 + edge, residual); }
// What an earlier forward kept of a row, and how a draft joins it to the row's embedding.
inline uint64_t kept(RowId row, uint64_t seed) { return mix(seed + 9000, row); }
inline uint64_t join(uint64_t x, uint64_t kept_row) { return mix(mix(9100, kept_row), x); }
inline uint64_t latents(int layer, uint64_t x) { return mix(9200 + layer, x); }
inline uint64_t dense(int layer, uint64_t x) { return mix(2000 + layer, x); }
inline uint64_t shared_expert(int layer, uint64_t x) { return mix(3000 + layer, x); }
inline uint64_t expert(int layer, int which, uint64_t x) { return mix(mix(4000 + layer, which), x); }
inline uint64_t head_column(uint64_t x, int column) { return mix(5000 + column, x); }
// Causal attention: a row sees itself and its replica's earlier rows.
inline uint64_t attention_state(uint64_t before, uint64_t x) { return mix(before, x); }
inline uint64_t attention(int layer, uint64_t state) { return mix(6000 + layer, state); }

// The share of member `index` of `size` ranks in a value that is owed as a sum.
uint64_t addend(uint64_t value, int index, int size);
// Different experts; one for every owner and a half, unless the options say how many.
int num_experts(const RankGrid& grid, const VerifierOptions& options);
void routes(int layer, uint64_t x, int num_experts, const VerifierOptions& options,
            std::vector<Route>& chosen);
uint64_t fold_columns(std::span<const uint64_t> columns);

// One rank that holds everything: what every real row must be at the end of every edge.
struct Expected {
  std::vector<std::vector<uint64_t>> hidden, residual;  // [edges][rows]; of padding rows nothing is expected
  std::vector<uint64_t> logits;                         // [rows] of the wanted ones: all columns folded
};
Expected run_on_one_rank(std::span<const Stage> chain, int num_head_columns, const RankGrid& grid,
                         const RowTable& table, const VerifierOptions& options);

}  // namespace lockstep::planning::symbolic
