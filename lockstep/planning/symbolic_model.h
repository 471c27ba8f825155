#pragma once
// The model that the verifier runs: rows are exact 64-bit integers, stages are mixing functions of them (so a
// missing, a doubled or a misplaced addend changes every later value), sums wrap around and are therefore
// exact in any order. Internal to planning: only the verifier includes it.
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/planning/step_plan.h"
#include "lockstep/planning/verifier.h"

namespace lockstep::planning::symbolic {

// A row of the step: its home rank and its place among its home's rows.
struct RowKey {
  int32_t home = 0, row = 0;
  auto operator<=>(const RowKey&) const = default;
};

struct Route {
  int expert = 0;
  uint64_t weight = 0;
};

inline uint64_t mix(uint64_t a, uint64_t b) { return mix64(mix64(a) ^ (b + 0x51ed270b)); }

inline uint64_t embedding(RowKey key, uint64_t seed) { return mix(seed, mix(key.home, key.row)); }
inline uint64_t norm(size_t edge, uint64_t residual) { return mix(1000 + edge, residual); }
inline uint64_t dense(int layer, uint64_t x) { return mix(2000 + layer, x); }
inline uint64_t shared_expert(int layer, uint64_t x) { return mix(3000 + layer, x); }
inline uint64_t expert(int layer, int which, uint64_t x) { return mix(mix(4000 + layer, which), x); }
inline uint64_t head_column(uint64_t x, int column) { return mix(5000 + column, x); }
// Causal attention: a row sees itself and its replica's earlier rows.
inline uint64_t attention_state(uint64_t before, uint64_t x) { return mix(before, x); }
inline uint64_t attention(int layer, uint64_t state) { return mix(6000 + layer, state); }

// The share of member `index` of `size` ranks in a value that is owed as a sum.
uint64_t addend(uint64_t value, int index, int size);
std::vector<Route> routes(int layer, uint64_t x, const VerifierOptions& options);
bool is_padding(const StepPlan& plan, const RankGrid& grid, RowKey key);
bool is_wanted(const StepPlan& plan, const RankGrid& grid, RowKey key);

// One rank that holds everything: what every real row must be at the end of every edge.
struct Expected {
  std::vector<std::map<RowKey, uint64_t>> hidden, residual;  // [edges]
  std::map<RowKey, uint64_t> logits;                         // of the wanted rows: all columns folded
};
Expected run_on_one_rank(const Plan& plan, const RankGrid& grid, const StepPlan& step_plan,
                         const VerifierOptions& options);
uint64_t fold_columns(const std::vector<uint64_t>& columns);
int num_head_columns(const Plan& plan, const RankGrid& grid);

}  // namespace lockstep::planning::symbolic
