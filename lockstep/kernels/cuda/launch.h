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

// What the copy engine needs to know of a matrix, made by TensorMaps.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
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
// Where a kernel leaves its output a second time for the product that follows: [rows, cols] bf16 contiguous,
// and what rounding took off.
struct Rounded {
  void *rounded = nullptr, *rest = nullptr;
};
// Whether rounded and rest were written too.
bool rms_norm(const Mat& x, const void* weight, Num weight_num, float eps, const Mat& out,
              const Rounded& rounded, cudaStream_t stream);
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
bool sum_add_norm(const Sources& addends, const Mat& residual, const void* weight, Num weight_num, float eps,
                  const Mat& out, const Rounded& rounded, cudaStream_t stream);
// Rows of `x` into the cache and back; both ways convert.
void store_rows(const Mat& x, const RowMoves& moves, const Mat& cache, cudaStream_t stream);
void load_rows(const Mat& cache, const RowMoves& moves, const Mat& out, cudaStream_t stream);
// out [rows, cols] bf16 contiguous = x rounded; with `rest`, that many bf16 more hold what rounding took off.
void to_bf16(const Mat& x, void* out, void* rest, cudaStream_t stream);
// out f32 = x [rows, cols] bf16 contiguous.
void from_bf16(const void* x, const Mat& out, cudaStream_t stream);

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
// logits = x · wᵀ + bias, not rounded, and their routing: bf16 weights, no groups, up to kMostRoutedByProduct
// experts, rows of x and w of whole 16-byte pieces.
struct RouterProduct {
  Mat x, w;
  const void* bias = nullptr;  // [experts]; null: none
  Num bias_num = Num::kF32;
};
void product_and_route(const RouterProduct& of, const Route& args, cudaStream_t stream);

// The largest of each row's first `valid` numbers and the first place where it stands; and whether all
// numbers of the row are finite.
inline constexpr int kLargestParts = 32;
struct Largest {
  Mat x;
  int64_t valid = 0;
  float* value = nullptr;        // [rows]
  int32_t* idx = nullptr;        // [rows]; -1 where a number is not finite
  float* part_values = nullptr;  // scratch [rows, kLargestParts]
  int32_t* part_ids = nullptr;   // the same
};
void largest(const Largest& args, cudaStream_t stream);

struct PlaceSource {
  const int32_t* expert_idx = nullptr;  // [rows, top_k] contiguous
  int32_t* slot_of = nullptr;           // the same
  int64_t rows = 0;
};
struct Place {
  PlaceSource sources[kMaxSources];  // same places as in `rows`
  int num_sources = 0, top_k = 0;
  int first_expert = 0, num_local = 0;
  int32_t* counts = nullptr;  // scratch [blocks of kThreads entries + 1, num_local]
  int32_t* start = nullptr;   // out [num_local + 1]
  RowMove* moves = nullptr;   // out [capacity]: which row each slot holds; dst -1 behind the last in use
  int64_t capacity = 0;
  Sources rows;                // what the slots are filled with
  Mat out;                     // [capacity, hidden]
  void* rounded = nullptr;     // [capacity, hidden] bf16 contiguous: the same once more
  bool rounded_alone = false;  // out may stay as it is; only with more than kFewEntries entries
};
void place_slots(const Place& args, cudaStream_t stream);

// Of many rows: into their slots, once these are known. False, and nothing done: they are not in whole
// pieces.
bool spread_rows(const Place& args, cudaStream_t stream);

struct Pull {
  const void* y[kMaxSources] = {};  // f32 or, of pull_rows(), bf16
  Num y_num = Num::kF32;
  int64_t y_stride[kMaxSources] = {};
  const int32_t* slot_of[kMaxSources] = {};
  int num_sources = 0, top_k = 0;
  const float* weight = nullptr;  // [rows, top_k] contiguous
  Mat out;
  Mat plus, onto;  // no data: none; out += plus, then onto += out
};
void pull_weighted(const Pull& args, cudaStream_t stream);
// The same for many rows. False, and nothing done: they are not in whole pieces.
bool pull_rows(const Pull& args, cudaStream_t stream);
// Of many rows: residual += what is pulled, out = its norm, and that once more rounded. `pull.out` stays as
// it is.
struct PullNorm {
  Pull pull;
  Mat residual;
  const void* weight = nullptr;  // [cols]
  Num weight_num = Num::kF32;
  float eps = 0;
  Mat out;
  Rounded rounded;
  bool rounded_alone = false;  // neither out nor what rounding takes off is written
};
bool fits_pull_norm(const PullNorm& args);
void pull_norm_rows(const PullNorm& args, cudaStream_t stream);

// out = x · wᵀ (or x · w), float32 sums, any dtype and alignment: what the library does not take.
void plain_linear(const Mat& x, const Mat& w, const Mat& out, cudaStream_t stream);
void plain_matmul(const Mat& x, const Mat& w, const Mat& out, cudaStream_t stream);

// Few rows of x with several matrices: out = x · wᵀ + bias each. All bf16, 16-byte aligned.
inline constexpr int kMostStreamed = 4;
struct StreamedMatrix {
  const void* w = nullptr;  // [outs, depth]
  int64_t stride = 0;
  int outs = 0;
  float* out = nullptr;  // [rows, outs]
  int64_t out_stride = 0;
  const void* bias = nullptr;  // [outs]; null: none
  Num bias_num = Num::kF32;
};
struct StreamedProducts {
  const void *x = nullptr,
             *rest = nullptr;  // [rows, depth] contiguous; rest: what rounding took off, or null
  int rows = 0, depth = 0, count = 0;
  StreamedMatrix matrices[kMostStreamed];
  int first_group[kMostStreamed + 1] = {};  // of 16 outputs; set by add_streamed()
};
void add_streamed(StreamedProducts& products, const StreamedMatrix& matrix);
void streamed_products(const StreamedProducts& args, cudaStream_t stream);

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
  void* rounded_y = nullptr;  // of experts_many_rows(): where y goes in bf16 instead, rows y_stride apart
  int* taken = nullptr;       // scratch of experts_many_rows() [2]
};
// bf16, widths of whole 16-byte pieces, gate and up with one stride: for few rows an expert, and for many
void streamed_experts(const Experts& args, cudaStream_t stream);
// Maps of x [slots, hidden] and of inner [slots, inter] in boxes of kExpertMapRows rows, and, on the device,
// of every expert's matrices in boxes of kMapRows rows, all by kMapCols columns.
inline constexpr int kMapRows = 96, kMapCols = 64, kExpertMapRows = 64;
struct ExpertMaps {
  TensorMap x, inner;
  const TensorMap *gate = nullptr, *up = nullptr, *down = nullptr;  // [num_experts]
};
void experts_many_rows(const Experts& args, const ExpertMaps& maps, cudaStream_t stream);
void experts_plain(const Experts& args, cudaStream_t stream);

// Of at most kMostRoutedEntries experts of rows: what place_slots(), the experts and pull_weighted() give,
// without slots. x is f32 [rows, hidden], inner scratch [rows * top_k, inter] bf16; start, slots and y are
// not used.
struct RoutedExperts {
  Experts experts;
  const int32_t* expert_idx = nullptr;  // [rows, top_k] contiguous
  const float* weight = nullptr;        // the same
  int rows = 0, top_k = 0, first_expert = 0;
  Mat out, plus, onto;  // as in Pull
};
void routed_experts(const RoutedExperts& args, cudaStream_t stream);

}  // namespace lockstep::kernels::cuda
