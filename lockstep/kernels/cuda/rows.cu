// Kernels over whole rows: embedding, norm, sums, copies between ranks, rotation, cache rows. Bound by memory:
// each reads its inputs once and writes its output once.
#include <cfloat>
#include <type_traits>

#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"

namespace lockstep::kernels::cuda {
namespace {

struct Way {
  int64_t source, src, dst;
};

__device__ Way way_of(const RowMoves& moves, int64_t at) {
  if (moves.listed == nullptr) return {0, moves.first + at, moves.first_out + at};
  const RowMove move = moves.listed[at];
  return {move.source, move.src, move.dst};
}

bool whole_pieces(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

template <class T>
__global__ void embed_kernel(const int32_t* ids, const T* table, int64_t vocab, int64_t table_stride,
                             float* out, int64_t out_stride, int64_t hidden) {
  const int64_t id = ids[blockIdx.x];
  float* to = out + blockIdx.x * out_stride;
  const bool known = id >= 0 && id < vocab;
  for (int64_t at = threadIdx.x; at < hidden; at += blockDim.x)
    to[at] = known ? to_f32(table[id * table_stride + at]) : 0.0f;
}

// A warp a row.
template <class W>
__global__ void norm_by_warp(const float* x, int64_t x_stride, const W* weight, float eps, float* out,
                             int64_t out_stride, int64_t rows, int64_t cols) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = threadIdx.x % kWarp;
  float squares = 0;
  for (int64_t at = lane; at < cols; at += kWarp) {
    const float value = x[row * x_stride + at];
    squares += value * value;
  }
  const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(cols) + eps);
  for (int64_t at = lane; at < cols; at += kWarp)
    out[row * out_stride + at] = to_f32(weight[at]) * (x[row * x_stride + at] * scale);
}

// A block a row that stays in registers: kMostPieces pieces of four values a thread.
constexpr int kMostPieces = 4, kRowThreads = 512;

// Four values and what rounding takes off them.
__device__ void store_rounded(const Rounded& to, int64_t at, const float4& x) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(x.x, x.y), high = __floats2bfloat162_rn(x.z, x.w);
  reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(to.rounded) + at)[0] = low;
  reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(to.rounded) + at)[1] = high;
  auto* rest = reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(to.rest) + at);
  rest[0] = __floats2bfloat162_rn(x.x - __low2float(low), x.y - __high2float(low));
  rest[1] = __floats2bfloat162_rn(x.z - __low2float(high), x.w - __high2float(high));
}

// A thread's weights, which are there before the row is.
template <class W>
__device__ void load_weights(const W* weight, int64_t cols, float4 (&weights)[kMostPieces]) {
#pragma unroll
  for (int n = 0; n < kMostPieces; ++n)
    if (const int64_t at = (static_cast<int64_t>(n) * kRowThreads + threadIdx.x) * 4; at < cols)
      weights[n] = {to_f32(weight[at]), to_f32(weight[at + 1]), to_f32(weight[at + 2]), to_f32(weight[at + 3])};
}

__device__ void norm_pieces(const float4 (&pieces)[kMostPieces], float squares, const float4 (&weights)[kMostPieces],
                            float eps, float* out, int64_t cols, const Rounded& rounded) {
  const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(cols) + eps);
#pragma unroll
  for (int n = 0; n < kMostPieces; ++n) {
    const int64_t at = (static_cast<int64_t>(n) * kRowThreads + threadIdx.x) * 4;
    if (at >= cols) break;
    const float4 x = pieces[n], w = weights[n];
    const float4 normed = {w.x * (x.x * scale), w.y * (x.y * scale), w.z * (x.z * scale), w.w * (x.w * scale)};
    *reinterpret_cast<float4*>(out + at) = normed;
    if (rounded.rounded != nullptr) store_rounded(rounded, blockIdx.x * cols + at, normed);
  }
}

__device__ float squares_of(const float4& x) { return x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w; }

template <class W>
__global__ void norm_in_registers(const float* x, int64_t x_stride, const W* weight, float eps, float* out,
                                  int64_t out_stride, int64_t cols, Rounded rounded) {
  let_next_kernel_come();
  float4 weights[kMostPieces];
  load_weights(weight, cols, weights);
  wait_for_kernels_before();
  float4 pieces[kMostPieces];
  float squares = 0;
#pragma unroll
  for (int n = 0; n < kMostPieces; ++n) {
    const int64_t at = (static_cast<int64_t>(n) * kRowThreads + threadIdx.x) * 4;
    if (at >= cols) break;
    pieces[n] = *reinterpret_cast<const float4*>(x + blockIdx.x * x_stride + at);
    squares += squares_of(pieces[n]);
  }
  norm_pieces(pieces, squares, weights, eps, out + blockIdx.x * out_stride, cols, rounded);
}

template <class W>
__global__ void sum_add_norm_in_registers(Sources addends, float* residual, int64_t residual_stride,
                                          const W* weight, float eps, float* out, int64_t out_stride,
                                          int64_t cols, Rounded rounded) {
  let_next_kernel_come();
  float4 weights[kMostPieces];
  load_weights(weight, cols, weights);
  wait_for_kernels_before();
  const int64_t row = blockIdx.x;
  float4 pieces[kMostPieces];
  float squares = 0;
#pragma unroll
  for (int n = 0; n < kMostPieces; ++n) {
    const int64_t at = (static_cast<int64_t>(n) * kRowThreads + threadIdx.x) * 4;
    if (at >= cols) break;
    float4& kept = *reinterpret_cast<float4*>(residual + row * residual_stride + at);
    float4 sum = *reinterpret_cast<const float4*>(addends.data[0] + row * addends.stride[0] + at);
    for (int source = 1; source < addends.count; ++source) {
      const float4 more = *reinterpret_cast<const float4*>(addends.data[source] + row * addends.stride[source] + at);
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    pieces[n] = {kept.x + sum.x, kept.y + sum.y, kept.z + sum.z, kept.w + sum.w};
    kept = pieces[n];
    squares += squares_of(pieces[n]);
  }
  norm_pieces(pieces, squares, weights, eps, out + row * out_stride, cols, rounded);
}

template <class W>
__global__ void norm_by_block(const float* x, int64_t x_stride, const W* weight, float eps, float* out,
                              int64_t out_stride, int64_t cols) {
  const float* from = x + blockIdx.x * x_stride;
  float squares = 0;
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x) squares += from[at] * from[at];
  const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(cols) + eps);
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x)
    out[blockIdx.x * out_stride + at] = to_f32(weight[at]) * (from[at] * scale);
}

// One row a block: the sum of what all members hold, onto the residual, normed.
template <class W>
__global__ void sum_add_norm_kernel(Sources addends, float* residual, int64_t residual_stride,
                                    const W* weight, float eps, float* out, int64_t out_stride,
                                    int64_t cols) {
  const int64_t row = blockIdx.x;
  float* kept = residual + row * residual_stride;
  float squares = 0;
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x) {
    float sum = addends.data[0][row * addends.stride[0] + at];
    for (int source = 1; source < addends.count; ++source)
      sum += addends.data[source][row * addends.stride[source] + at];
    const float value = kept[at] + sum;
    kept[at] = value;
    squares += value * value;
  }
  const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(cols) + eps);
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x)
    out[row * out_stride + at] = to_f32(weight[at]) * (kept[at] * scale);
}

__global__ void add_kernel(float* x, int64_t x_stride, const float* y, int64_t y_stride, int64_t cols) {
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x)
    x[blockIdx.x * x_stride + at] += y[blockIdx.x * y_stride + at];
}

template <class B>
__global__ void bias_kernel(float* x, int64_t stride, const B* bias, int64_t cols) {
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x)
    x[blockIdx.x * stride + at] += to_f32(bias[at]);
}

__global__ void silu_mul_kernel(const float* gate, int64_t gate_stride, const float* up, int64_t up_stride,
                                float* out, int64_t out_stride, int64_t cols, Gate gating) {
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x)
    out[blockIdx.x * out_stride + at] =
        gated(gate[blockIdx.x * gate_stride + at], up[blockIdx.x * up_stride + at], gating);
}

__global__ void sigmoid_mul_kernel(float* x, int64_t stride, const float* gate, int64_t gate_stride,
                                   int64_t cols, bool one_a_row) {
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x) {
    const float g = gate[blockIdx.x * gate_stride + (one_a_row ? 0 : at)];
    x[blockIdx.x * stride + at] *= 1.0f / (1.0f + expf(-g));
  }
}

__global__ void zero_kernel(float* x, int64_t stride, int64_t cols) {
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x) x[blockIdx.x * stride + at] = 0;
}

__global__ void copy_rows_kernel(Sources from, RowMoves moves, float* out, int64_t out_stride, int64_t cols,
                                 bool whole) {
  const Way way = way_of(moves, blockIdx.x);
  if (way.dst < 0) return;
  const float* src = from.data[way.source] + way.src * from.stride[way.source];
  float* dst = out + way.dst * out_stride;
  if (whole) {
    for (int64_t at = threadIdx.x; at < cols / 4; at += blockDim.x)
      reinterpret_cast<float4*>(dst)[at] = reinterpret_cast<const float4*>(src)[at];
  } else {
    for (int64_t at = threadIdx.x; at < cols; at += blockDim.x) dst[at] = src[at];
  }
}

__global__ void sum_rows_kernel(Sources addends, RowMoves moves, float* out, int64_t out_stride,
                                int64_t cols) {
  const Way way = way_of(moves, blockIdx.x);
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x) {
    float sum = addends.data[0][way.src * addends.stride[0] + at];
    for (int source = 1; source < addends.count; ++source)
      sum += addends.data[source][way.src * addends.stride[source] + at];
    out[way.dst * out_stride + at] = sum;
  }
}

template <class From, class To>
__global__ void convert_rows_kernel(const From* from, int64_t from_stride, RowMoves moves, To* to,
                                    int64_t to_stride, int64_t cols) {
  const Way way = way_of(moves, blockIdx.x);
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x)
    store(to + way.dst * to_stride + at, to_f32(from[way.src * from_stride + at]));
}

__global__ void to_bf16_kernel(const float* x, int64_t stride, __nv_bfloat16* out, __nv_bfloat16* rest,
                               int64_t cols) {
  for (int64_t at = threadIdx.x; at < cols; at += blockDim.x) {
    const float value = x[blockIdx.x * stride + at];
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    out[blockIdx.x * cols + at] = rounded;
    if (rest != nullptr) rest[blockIdx.x * cols + at] = __float2bfloat16_rn(value - __bfloat162float(rounded));
  }
}

__global__ void rope_kernel(Rope args) {
  const int64_t row = blockIdx.x;
  const int pairs = args.dim / 2;
  const int64_t table_row = args.positions[row] * args.table_stride;
  float* x = static_cast<float*>(args.x.data) + row * args.x.stride + args.offset;
  for (int at = threadIdx.x; at < args.num_heads * pairs; at += blockDim.x) {
    const int head = at / pairs, pair = at % pairs;
    float* first = x + static_cast<int64_t>(head) * args.head_stride + (args.half ? pair : 2 * pair);
    float* second = first + (args.half ? pairs : 1);
    const float cos = args.cos[table_row + pair], sin = args.sin[table_row + pair];
    const float a = *first, b = *second;
    *first = a * cos - b * sin;
    *second = b * cos + a * sin;
  }
}

struct Candidate {
  float value;
  int32_t idx;
};
__device__ Candidate larger(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? (a.value > b.value ? a : b) : (a.idx < b.idx ? a : b);
}

// blockIdx.x: a row; blockIdx.y: one of kLargestParts of it. A place of -1 says that a number is not finite.
__global__ void __launch_bounds__(kThreads) largest_of_parts(Largest args) {
  begin_early_kernel();
  __shared__ Candidate of_warp[kThreads / kWarp];
  __shared__ int bad_of_warp[kThreads / kWarp];
  const float* x = static_cast<const float*>(args.x.data) + blockIdx.x * args.x.stride;
  const int width = static_cast<int>((args.x.cols + kLargestParts - 1) / kLargestParts);
  const int begin = static_cast<int>(blockIdx.y) * width, end = min(begin + width, static_cast<int>(args.x.cols));
  Candidate best{-INFINITY, INT32_MAX};  // of no number
  int bad = 0;
#pragma unroll 4
  for (int at = begin + static_cast<int>(threadIdx.x); at < end; at += kThreads) {
    const float value = x[at];
    bad |= !(fabsf(value) <= FLT_MAX);
    if (at < args.valid && (best.idx == INT32_MAX || value > best.value)) best = {value, at};
  }
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int step = 16; step > 0; step /= 2)
    best = larger(best, {__shfl_xor_sync(0xffffffffu, best.value, step), __shfl_xor_sync(0xffffffffu, best.idx, step)});
  bad = __any_sync(0xffffffffu, bad);
  if (lane == 0) {
    of_warp[warp] = best;
    bad_of_warp[warp] = bad;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int other = 1; other < kThreads / kWarp; ++other) {
    best = larger(best, of_warp[other]);
    bad |= bad_of_warp[other];
  }
  const int64_t part = static_cast<int64_t>(blockIdx.x) * kLargestParts + blockIdx.y;
  args.part_values[part] = best.value;
  args.part_ids[part] = bad ? -1 : best.idx;
}

__global__ void __launch_bounds__(kWarp) largest_of_rows(Largest args) {
  begin_early_kernel();
  static_assert(kLargestParts == kWarp);
  const int64_t part = static_cast<int64_t>(blockIdx.x) * kLargestParts + threadIdx.x;
  Candidate best{args.part_values[part], args.part_ids[part]};
  const bool bad = __any_sync(0xffffffffu, best.idx < 0) != 0;
  for (int step = 16; step > 0; step /= 2)
    best = larger(best, {__shfl_xor_sync(0xffffffffu, best.value, step), __shfl_xor_sync(0xffffffffu, best.idx, step)});
  if (threadIdx.x != 0) return;
  args.value[blockIdx.x] = best.value;
  args.idx[blockIdx.x] = bad ? -1 : best.idx;
}

unsigned blocks(int64_t rows) { return static_cast<unsigned>(rows); }
float* f32(const Mat& x) { return static_cast<float*>(x.data); }
bool nothing(const Mat& x) { return x.rows == 0 || x.cols == 0; }
bool fits_registers(int64_t cols) { return cols % 4 == 0 && cols <= int64_t{4} * kMostPieces * kRowThreads; }
unsigned threads_for(int64_t cols) {
  return cols >= kThreads ? kThreads : static_cast<unsigned>(ceil_div(cols, kWarp) * kWarp);
}

}  // namespace

void embed(const int32_t* ids, const Mat& table, const Mat& out, cudaStream_t stream) {
  if (nothing(out)) return;
  with_num(table.num, table.data, [&](const auto* data) {
    embed_kernel<<<blocks(out.rows), threads_for(out.cols), 0, stream>>>(
        ids, data, table.rows, table.stride, f32(out), out.stride, out.cols);
  });
}

bool rms_norm(const Mat& x, const void* weight, Num weight_num, float eps, const Mat& out,
              const Rounded& rounded, cudaStream_t stream) {
  if (nothing(x)) return false;
  const bool in_registers = x.cols > kWarpRow && fits_registers(x.cols) && whole_pieces(x.data, x.stride) &&
                            whole_pieces(out.data, out.stride);
  const unsigned count = blocks(norm_blocks(x.rows, x.cols));
  with_num(weight_num, weight, [&](const auto* w) {
    if (x.cols <= kWarpRow) {
      norm_by_warp<<<count, kThreads, 0, stream>>>(f32(x), x.stride, w, eps, f32(out), out.stride, x.rows,
                                                   x.cols);
    } else if (in_registers) {
      using W = std::remove_const_t<std::remove_pointer_t<decltype(w)>>;
      launch_early(norm_in_registers<W>, dim3(count), kRowThreads, 0, stream, f32(x), x.stride, w, eps, f32(out),
                   out.stride, x.cols, rounded);
    } else {
      norm_by_block<<<count, kThreads, 0, stream>>>(f32(x), x.stride, w, eps, f32(out), out.stride, x.cols);
    }
  });
  return in_registers && rounded.rounded != nullptr;
}

void add(const Mat& x, const Mat& y, cudaStream_t stream) {
  if (nothing(x)) return;
  add_kernel<<<blocks(x.rows), threads_for(x.cols), 0, stream>>>(f32(x), x.stride, f32(y), y.stride, x.cols);
}

void add_bias(const Mat& x, const void* bias, Num num, cudaStream_t stream) {
  if (nothing(x)) return;
  with_num(num, bias, [&](const auto* b) {
    bias_kernel<<<blocks(x.rows), threads_for(x.cols), 0, stream>>>(f32(x), x.stride, b, x.cols);
  });
}

void silu_mul(const Mat& gate, const Mat& up, const Mat& out, const Gate& gating, cudaStream_t stream) {
  if (nothing(out)) return;
  silu_mul_kernel<<<blocks(out.rows), threads_for(out.cols), 0, stream>>>(
      f32(gate), gate.stride, f32(up), up.stride, f32(out), out.stride, out.cols, gating);
}

void sigmoid_mul(const Mat& x, const Mat& gate, cudaStream_t stream) {
  if (nothing(x)) return;
  sigmoid_mul_kernel<<<blocks(x.rows), threads_for(x.cols), 0, stream>>>(f32(x), x.stride, f32(gate),
                                                                         gate.stride, x.cols, gate.cols == 1);
}

bool has_code_here() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, zero_kernel) == cudaSuccess;
}

void largest(const Largest& args, cudaStream_t stream) {
  if (args.x.rows == 0) return;
  launch_early(largest_of_parts, dim3(blocks(args.x.rows), kLargestParts), kThreads, 0, stream, args);
  launch_early(largest_of_rows, dim3(blocks(args.x.rows)), kWarp, 0, stream, args);
}

void zero_rows(const Mat& x, cudaStream_t stream) {
  if (nothing(x)) return;
  zero_kernel<<<blocks(x.rows), threads_for(x.cols), 0, stream>>>(f32(x), x.stride, x.cols);
}

void copy_rows(const Sources& from, const RowMoves& moves, const Mat& out, cudaStream_t stream) {
  if (moves.count == 0 || out.cols == 0) return;
  bool whole = whole_pieces(out.data, out.stride) && out.cols % 4 == 0;
  for (int source = 0; source < from.count; ++source)
    whole = whole && whole_pieces(from.data[source], from.stride[source]);
  copy_rows_kernel<<<blocks(moves.count), threads_for(whole ? out.cols / 4 : out.cols), 0, stream>>>(
      from, moves, f32(out), out.stride, out.cols, whole);
}

void sum_rows(const Sources& addends, const RowMoves& moves, const Mat& out, cudaStream_t stream) {
  if (moves.count == 0 || out.cols == 0) return;
  sum_rows_kernel<<<blocks(moves.count), threads_for(out.cols), 0, stream>>>(addends, moves, f32(out),
                                                                             out.stride, out.cols);
}

bool sum_add_norm(const Sources& addends, const Mat& residual, const void* weight, Num weight_num, float eps,
                  const Mat& out, const Rounded& rounded, cudaStream_t stream) {
  if (nothing(out)) return false;
  bool whole = fits_registers(out.cols) && whole_pieces(residual.data, residual.stride) &&
               whole_pieces(out.data, out.stride);
  for (int source = 0; source < addends.count; ++source)
    whole = whole && whole_pieces(addends.data[source], addends.stride[source]);
  with_num(weight_num, weight, [&](const auto* w) {
    if (whole) {
      using W = std::remove_const_t<std::remove_pointer_t<decltype(w)>>;
      launch_early(sum_add_norm_in_registers<W>, dim3(blocks(out.rows)), kRowThreads, 0, stream, addends, f32(residual),
                   residual.stride, w, eps, f32(out), out.stride, out.cols, rounded);
      return;
    }
    sum_add_norm_kernel<<<blocks(out.rows), kThreads, 0, stream>>>(
        addends, f32(residual), residual.stride, w, eps, f32(out), out.stride, out.cols);
  });
  return whole && rounded.rounded != nullptr;
}

void store_rows(const Mat& x, const RowMoves& moves, const Mat& cache, cudaStream_t stream) {
  if (moves.count == 0 || x.cols == 0) return;
  with_num(cache.num, cache.data, [&](const auto* to) {
    convert_rows_kernel<<<blocks(moves.count), threads_for(x.cols), 0, stream>>>(
        static_cast<const float*>(x.data), x.stride, moves,
        const_cast<std::remove_const_t<std::remove_pointer_t<decltype(to)>>*>(to), cache.stride, x.cols);
  });
}

void load_rows(const Mat& cache, const RowMoves& moves, const Mat& out, cudaStream_t stream) {
  if (moves.count == 0 || out.cols == 0) return;
  with_num(cache.num, cache.data, [&](const auto* from) {
    convert_rows_kernel<<<blocks(moves.count), threads_for(out.cols), 0, stream>>>(
        from, cache.stride, moves, f32(out), out.stride, out.cols);
  });
}

void to_bf16(const Mat& x, void* out, void* rest, cudaStream_t stream) {
  if (nothing(x)) return;
  to_bf16_kernel<<<blocks(x.rows), threads_for(x.cols), 0, stream>>>(
      f32(x), x.stride, static_cast<__nv_bfloat16*>(out), static_cast<__nv_bfloat16*>(rest), x.cols);
}

void from_bf16(const void* x, const Mat& out, cudaStream_t stream) {
  if (nothing(out)) return;
  convert_rows_kernel<<<blocks(out.rows), threads_for(out.cols), 0, stream>>>(
      static_cast<const __nv_bfloat16*>(x), out.cols, RowMoves{.count = out.rows}, f32(out), out.stride, out.cols);
}

void rope(const Rope& args, cudaStream_t stream) {
  const int64_t pairs = static_cast<int64_t>(args.num_heads) * (args.dim / 2);
  if (args.x.rows == 0 || pairs == 0) return;
  rope_kernel<<<blocks(args.x.rows), threads_for(pairs), 0, stream>>>(args);
}

}  // namespace lockstep::kernels::cuda
