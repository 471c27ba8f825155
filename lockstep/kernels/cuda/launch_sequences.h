#pragma once
// What launch.h is for the kernels that know of sequences: attention, and layers that keep a state.
#include "lockstep/kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

// Rows of queries, keys and values on their way into attention, see kernels::AttentionRowsArgs. Heads of
// whole warps' widths.
struct AttentionRows {
  Mat q, k, v;
  int head_dim = 0, query_stride = 0;  // query_stride: values between two heads of q
  int num_heads = 0, num_kv_heads = 0;
  const void *q_norm = nullptr, *k_norm = nullptr;  // [head_dim]; null: none
  Num norm_num = Num::kF32;
  float eps = 0;
  int dim = 0;  // rotated values, in halves
  const int32_t *q_positions = nullptr, *k_positions = nullptr;
  const float *cos = nullptr, *sin = nullptr;
  int64_t table_stride = 0;
  RowMoves moves;  // of rows of k and v into the caches
  Mat keys, values;
  // Of prompt_rows(): [rows, heads * head_dim] bf16, all queries; in q itself those from this row on.
  void* rounded_q = nullptr;
  int64_t q_whole_from = 0;
};
constexpr int kWidestHead = 256;
void attention_rows(const AttentionRows& args, cudaStream_t stream);
// The same for what fits_prompt_rows().
void prompt_rows(const AttentionRows& args, cudaStream_t stream);

// One row of queries: it sees tokens first … tokens - 1 of a sequence.
struct AttentionRow {
  int32_t row = 0, tokens = 0, table = 0;  // table: where the sequence's pages begin in `tables`
};
// Rows [row, row + rows) of a sequence, of which the first sees `tokens` and every later one a token more.
// Tokens from `fresh` on are written by this step: only those before may be read before kernels end.
struct AttentionTile {
  int32_t row = 0, rows = 0, tokens = 0, table = 0, fresh = 0;
};
struct Attention {
  const float* q = nullptr;
  int64_t q_row_stride = 0, q_head_stride = 0;
  float* out = nullptr;
  int64_t out_row_stride = 0, out_head_stride = 0;
  const AttentionRow* rows = nullptr;
  const AttentionTile* tiles = nullptr;  // of attention_tiles() instead of rows
  bool chunked = false;                  // the tiles have many rows, else one
  int num_rows = 0;                      // or tiles
  const int32_t* tables = nullptr;       // null: token t is row t
  int page_size = 1;
  // A key is dims [0, key_split) of k and the rest of k_rest.
  const void *k = nullptr, *k_rest = nullptr, *v = nullptr;
  int64_t k_stride = 0, k_rest_stride = 0, v_stride = 0;
  int64_t k_head_stride = 0, v_head_stride = 0;  // between key/value heads
  Num num = Num::kF32;
  int key = 0, key_split = 0, value = 0;  // widths
  int num_heads = 0, group = 1,
      first_in_group = 0;  // query head j reads key/value head (first_in_group + j) / group
  float scale = 1;
  int window = 0;
  const void* sinks = nullptr;  // [heads]; null: none
  Num sinks_num = Num::kF32;
  int num_splits = 1;
  int split_width = 0;       // of attend_rows(): the most tokens that a split has
  float* partial = nullptr;  // scratch, attention_scratch_floats()
  void* rounded = nullptr;   // [rows, heads * value] bf16: the output once more; null: not wanted
};
void attention(const Attention& args, cudaStream_t stream);
// On tensor cores: a bf16 cache, keys and values of 64 or 128, whole groups of at most 16 heads, no window.
void attention_tiles(const Attention& args, cudaStream_t stream);
// attention_rows() and attention_tiles() of single rows, in one kernel that leaves q and k as they are: heads
// are turned whole, caches are bf16, row n of q, k and v is the same, no two rows are of one sequence,
// because a row's key and value are written while others are read, and splits are at most kMostClusterSplits.
void attend_rows(const Attention& args, const AttentionRows& left, cudaStream_t stream);
// Chunks on Hopper's matrix instructions: heads of 128, pages that pages_fit_boxes(), a scale above 0. Maps
// of the caches in boxes of a page by kMapCols columns, and of queries [rows, heads, 128] bf16 in boxes of
// rows_of_tile(group) rows by `group` heads by kMapCols columns. `out` may be null where `rounded` is not.
struct ChunkMaps {
  TensorMap queries, keys, values;
};
void attention_chunks(const Attention& args, const ChunkMaps& maps, cudaStream_t stream);
// The parts of split rows; rows or tiles of one row each.
void merge_splits(const Attention& args, cudaStream_t stream);

// Layers that keep a state once a sequence.
struct StateSequence {
  int32_t first_row = 0, num_rows = 0, slot = 0, starts = 0;
};
struct CausalConv {
  Mat x, weight, out;
  float* state = nullptr;  // [slots, taps - 1, channels]
  const StateSequence* sequences = nullptr;
  int num_sequences = 0;
};
void causal_conv(const CausalConv& args, cudaStream_t stream);

struct Heads {  // [rows, heads, width]
  float* data = nullptr;
  int64_t rows = 0, row_stride = 0, head_stride = 0;
  int heads = 0, width = 0;
};
// out [rows, heads * width] bf16 contiguous = x rounded.
void heads_to_bf16(const Heads& x, void* out, cudaStream_t stream);
void heads_from_bf16(const void* x, const Heads& out, cudaStream_t stream);
void l2_norm(const Heads& x, float eps, float scale, cudaStream_t stream);

struct DeltaGates {
  Mat a, b, decay, beta;
  const void *a_log = nullptr, *dt_bias = nullptr;
  Num a_log_num = Num::kF32, dt_bias_num = Num::kF32;
};
void delta_gates(const DeltaGates& args, cudaStream_t stream);

struct GatedDelta {
  Heads q, k, v, out;
  Mat decay, beta;
  int group = 1, first_in_group = 0;
  float* state = nullptr;  // [slots, heads, key, value]
  const StateSequence* sequences = nullptr;
  int num_sequences = 0;
};
void gated_delta(const GatedDelta& args, cudaStream_t stream);

}  // namespace lockstep::kernels::cuda
