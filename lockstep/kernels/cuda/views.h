#pragma once
// From the op table's views and sequences to what launchers take. Host arithmetic only.
#include <vector>

#include "lockstep/kernels/cuda/launch_sequences.h"
#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels::cuda {

// A matrix as it lies; f32, bf16 or i32 (whose elements the launchers know to be that).
Mat mat(const TensorView& view);
Num num_of(const TensorView& view);
// At most kMaxSources of [rows, cols] f32.
Sources sources_of(std::span<const TensorView> views);

// A cube [rows, heads, width] whose heads lie one behind the other.
Mat rows_of_heads(const TensorView& cube);
// Of weights with one stride and dtype for all.
std::vector<const void*> pointers_of(std::span<const WeightView> weights);
// The numbers of a weight: codes are the host's.
const TensorView& numbers_of(const WeightView& weight);
bool is_aligned16(const void* data);
// Whether two views of memory may share an element: by where they begin and end.
bool overlap(const TensorView& a, const TensorView& b);
Gate gate_of(const Gating& gating);
// Where the biases of experts lie: none at all, or one an expert, null where it has none.
struct ExpertBiases {
  std::vector<const void*> gate, up, down;
  Num num = Num::kF32;
};
ExpertBiases biases_of(const GroupedFfnArgs& args);

Route route_of(const RouteArgs& args, const uint8_t* valid);
Heads heads_of(const TensorView& cube);
std::vector<StateSequence> state_sequences(std::span<const PagedSequence> sequences);

// Every row of `pieces` by itself. One piece from source 0 needs no list: `listed` stays empty and the moves
// say where it begins.
struct MoveList {
  RowMoves moves;               // `listed` is set once they are on the GPU
  std::vector<RowMove> listed;  // empty: none needed
};
MoveList moves_of(std::span<const RowPiece> pieces);
// New rows of sequences into the cache; tokens of a sequence out of it.
std::vector<RowMove> store_moves(std::span<const PagedSequence> sequences, int page_size);
std::vector<RowMove> load_moves(const PagedSequence& sequence, int page_size);

// The rows of queries that sequences have, apart: one row alone, whose tokens may be split, and rows of
// longer chunks.
struct QueryRows {
  std::vector<AttentionRow> single, chunked;
  std::vector<int32_t> tables;  // page tables one behind the other
  int64_t max_single_tokens = 0;
};
QueryRows query_rows(std::span<const PagedSequence> sequences, int page_size);
// The same in tiles of at most `rows_of_tile` rows; single rows are tiles of one.
struct QueryTiles {
  std::vector<AttentionTile> single, chunked;
  std::vector<int32_t> tables;
  int64_t max_single_tokens = 0;
};
// `written`: whose keys and values this step writes, which may be more rows than are asked for.
QueryTiles query_tiles(std::span<const PagedSequence> sequences, std::span<const PagedSequence> written,
                       int page_size, int rows_of_tile);
// Whether every entry is one row, and of a sequence of its own: drafts are entries with one page table.
bool one_row_a_sequence(std::span<const PagedSequence> sequences);

// All but the positions and where rows go.
AttentionRows attention_rows_of(const AttentionRowsArgs& args);

// All but the rows of queries and the page tables.
Attention attention_of(const GqaArgs& args);
Attention attention_of(const MlaAbsorbedArgs& args);
Attention attention_of(const MlaExpandedArgs& args);

}  // namespace lockstep::kernels::cuda
