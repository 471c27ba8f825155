#pragma once
// Ops whose time is not worth vectors, written once for every CPU implementation: they move rows, turn pairs,
// choose experts, or are made of other ops.
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels::cpu {

// Memory that route() uses again for every row.
struct RouteScratch {
  std::vector<float> score, biased;  // [num_experts]
  std::vector<float> group_score;    // [num_groups]
  std::vector<int32_t> groups;       // [num_groups], best first
  std::vector<int32_t> candidates;   // experts of the kept groups, best first
};

void embed(const EmbedArgs& args);
void add_bias(const LinearArgs& args);  // to what is in `out`; nothing without a bias
void rope(const RopeArgs& args);
void route(const RouteArgs& args, RouteScratch& scratch);
void cache_write(const CacheWriteArgs& args);
void cache_read(const CacheReadArgs& args);
void grouped_ffn(const GroupedFfnArgs& args, Kernels& kernels);
void check_expert_start(const GroupedFfnArgs& args);  // ascends from 0 to the rows of x
void delta_gates(const DeltaGatesArgs& args);
void copy_rows(const CopyRowsArgs& args);
void sum_rows(const SumRowsArgs& args);
// The two ops that sum_add_norm is made of.
struct RowOps {
  void (*add)(const AddArgs&);
  void (*rms_norm)(RmsNormArgs&);
};
void sum_add_norm(SumAddNormArgs& args, const RowOps& ops);
// Where rows go; copy_to_slots() then takes rows [begin, end) of one source there.
void choose_slots(const PlaceSlotsArgs& args);
void copy_to_slots(const PlaceSlotsArgs::Source& source, Range rows, const TensorView& out);
void place_slots(const PlaceSlotsArgs& args);
void pull_weighted(const PullWeightedArgs& args);

// The cache row of one token of a sequence.
inline int64_t cache_row(const PagedSequence& sequence, int page_size, int64_t token) {
  return int64_t{sequence.page_table[static_cast<size_t>(token / page_size)]} * page_size + token % page_size;
}

}  // namespace lockstep::kernels::cpu
