#pragma once
// What the CUDA sources (.cu) export: launchers that take plain structs of device pointers. No header of ours
// that needs fmt may be included here, which nvcc cannot compile. Only lockstep/kernels/cuda includes this.
// Every launcher queues its kernels on `stream` and returns; zero rows launch nothing.
#include <cstdint>

struct CUstream_st;
using cudaStream_t = CUstream_st*;  // as CUDA declares it

namespace lockstep::kernels::cuda {

enum class Num : uint8_t { kF32, kBF16 };

// [rows, cols], `stride` elements between rows.
struct Mat {
  void* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  Num num = Num::kF32;
};

// Members of a group whose rows one kernel reads.
inline constexpr int kMaxSources = 32;
struct Sources {
  const float* data[kMaxSources] = {};
  int64_t stride[kMaxSources] = {};
  int count = 0;
};

// One row's way; -1 as dst skips it.
struct RowMove {
  int32_t source = 0, src = 0, dst = 0;
};
// The moves of `count` rows: those listed, or source 0 from `first` on to out rows `first_out` on.
struct RowMoves {
  const RowMove* listed = nullptr;
  int64_t count = 0, first = 0, first_out = 0;
};

void embed(const int32_t* ids, const Mat& table, const Mat& out, cudaStream_t stream);
void rms_norm(const Mat& x, const void* weight, Num weight_num, float eps, const Mat& out,
              cudaStream_t stream);
void add(const Mat& x, const Mat& y, cudaStream_t stream);
void add_bias(const Mat& x, const void* bias, Num num, cudaStream_t stream);
// How a gate acts, see kernels::Gating.
struct Gate {
  float limit = 0, alpha = 1, up_shift = 0;
};
void silu_mul(const Mat& gate, const Mat& up, const Mat& out, const Gate& gating, cudaStream_t stream);
// x *= sigmoid(gate), one a value or one a row.
void sigmoid_mul(const Mat& x, const Mat& gate, cudaStream_t stream);
void zero_rows(const Mat& x, cudaStream_t stream);
// Whether the kernels were compiled for the GPU that this thread uses.
bool has_code_here();
void copy_rows(const Sources& from, const RowMoves& moves, const Mat& out, cudaStream_t stream);
void sum_rows(const Sources& addends, const RowMoves& moves, const Mat& out, cudaStream_t stream);
void sum_add_norm(const Sources& addends, const Mat& residual, const void* weight, Num weight_num, float eps,
                  const Mat& out, cudaStream_t stream);
// Rows of `x` into the cache and back; both ways convert.
void store_rows(const Mat& x, const RowMoves& moves, const Mat& cache, cudaStream_t stream);
void load_rows(const Mat& cache, const RowMoves& moves, const Mat& out, cudaStream_t stream);
// out [rows, cols] bf16 contiguous = x rounded; with `rest`, that many bf16 more hold what rounding took off.
void to_bf16(const Mat& x, void* out, void* rest, cudaStream_t stream);

struct Rope {
  Mat x;
  int num_heads = 0, head_stride = 0, offset = 0, dim = 0;
  const int32_t* positions = nullptr;
  const float *cos = nullptr, *sin = nullptr;
  int64_t table_stride = 0;
  bool half = false;  // pairs (i, i + dim / 2), else (2i, 2i + 1)
};
void rope(const Rope& args, cudaStream_t stream);

struct Route {
  Mat logits;
  const float* bias = nullptr;
  const uint8_t* valid = nullptr;
  int top_k = 0, num_groups = 1, top_groups = 1;
  bool sigmoid = false, normalised = false;
  bool groups_by_best = false;  // else by the sum of their two best
  float scale = 1;
  int32_t* expert_idx = nullptr;
  int64_t idx_stride = 0;
  Mat weight;
};
void route(const Route& args, cudaStream_t stream);

struct PlaceSource {
  const int32_t* expert_idx = nullptr;  // [rows, top_k] contiguous
  int32_t* slot_of = nullptr;           // the same
  int64_t rows = 0;
};
struct Place {
  PlaceSource sources[kMaxSources];
  int num_sources = 0, top_k = 0;
  int first_expert = 0, num_local = 0;
  int32_t* counts = nullptr;  // scratch [num_local]
  int32_t* start = nullptr;   // out [num_local + 1]
  RowMove* moves = nullptr;   // out [capacity]: which row each slot holds; dst -1 behind the last in use
  int64_t capacity = 0;
};
void place_slots(const Place& args, cudaStream_t stream);

struct Pull {
  const float* y[kMaxSources] = {};
  int64_t y_stride[kMaxSources] = {};
  const int32_t* slot_of[kMaxSources] = {};
  int num_sources = 0, top_k = 0;
  const float* weight = nullptr;  // [rows, top_k] contiguous
  Mat out;
};
void pull_weighted(const Pull& args, cudaStream_t stream);

// out = x · wᵀ (or x · w), float32 sums, any dtype and alignment: what the library does not take.
void plain_linear(const Mat& x, const Mat& w, const Mat& out, cudaStream_t stream);
void plain_matmul(const Mat& x, const Mat& w, const Mat& out, cudaStream_t stream);

// Products of rows grouped by expert; how many rows each expert has is read on the device.
struct Experts {
  const int32_t* start = nullptr;  // [num_experts + 1]
  int num_experts = 0;
  const void* const* gate = nullptr;  // [num_experts] of [inter, hidden]
  const void* const* up = nullptr;
  const void* const* down = nullptr;  // [num_experts] of [hidden, inter]
  int64_t gate_stride = 0, up_stride = 0, down_stride = 0;
  Num num = Num::kBF16;
  // All null, or [num_experts] of [inter], [inter] and [hidden]; a null one is none.
  const void *const *gate_bias = nullptr, *const *up_bias = nullptr, *const *down_bias = nullptr;
  Num bias_num = Num::kBF16;
  Gate gating;
  int hidden = 0, inter = 0;
  int64_t slots = 0;        // capacity
  const void* x = nullptr;  // [slots, hidden]: bf16 for the tensor cores, else f32
  int64_t x_stride = 0;
  void* inner = nullptr;  // scratch [slots, inter], of the dtype of x
  float* y = nullptr;     // [slots, hidden]
  int64_t y_stride = 0;
};
void experts_tensor_cores(const Experts& args, cudaStream_t stream);  // bf16, widths of whole 16-byte pieces
void experts_tiles(const Experts& args, cudaStream_t stream);         // the same, for many rows an expert
void experts_plain(const Experts& args, cudaStream_t stream);

// One row of queries: it sees tokens first … tokens - 1 of a sequence.
struct AttentionRow {
  int32_t row = 0, tokens = 0, table = 0;  // table: where the sequence's pages begin in `tables`
};
// Rows [row, row + rows) of a sequence, of which the first sees `tokens` and every later one a token more.
struct AttentionTile {
  int32_t row = 0, rows = 0, tokens = 0, table = 0;
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
  float* partial = nullptr;  // scratch, attention_scratch_floats()
};
void attention(const Attention& args, cudaStream_t stream);
// On tensor cores: a bf16 cache, keys and values of 64 or 128, whole groups of at most 16 heads, no window.
void attention_tiles(const Attention& args, cudaStream_t stream);
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
