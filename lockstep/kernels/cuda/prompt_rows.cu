// What attention_rows.cu does, for many rows of heads of 128 that are turned whole: a warp has several heads on their
// way at once, in pairs of values, and leaves queries a second time in bf16 for attention.
#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kWarps = kThreads / kWarp, kWidth = 128, kHalf = kWidth / 2;
constexpr int kAtOnce = 4;     // heads of a warp
constexpr int kMovesABlock = 4;  // rows of keys and values

// A lane's values of a head, or of what is multiplied with them: 2 lane, 2 lane + 1, and the same of the other half.
struct Quad {
  float2 low, high;
};

__device__ int own_column() { return static_cast<int>(threadIdx.x) % kWarp * 2; }

__device__ Quad load_quad(const float* head) {
  const float* from = head + own_column();
  return {*reinterpret_cast<const float2*>(from), *reinterpret_cast<const float2*>(from + kHalf)};
}

__device__ Quad load_weight(const void* weight, Num num) {
  if (weight == nullptr) return {{1, 1}, {1, 1}};
  const int at = own_column();
  return {{number_at(weight, num, at), number_at(weight, num, at + 1)},
          {number_at(weight, num, at + kHalf), number_at(weight, num, at + kHalf + 1)}};
}

struct Angles {
  float2 cos, sin;
};
__device__ Angles load_angles(const AttentionRows& args, int position) {
  const int64_t at = position * args.table_stride + own_column();
  return {*reinterpret_cast<const float2*>(args.cos + at), *reinterpret_cast<const float2*>(args.sin + at)};
}

__device__ Quad normed(const Quad& x, const Quad& weight, float eps) {
  const float squares = x.low.x * x.low.x + x.low.y * x.low.y + x.high.x * x.high.x + x.high.y * x.high.y;
  const float scale = 1.0f / sqrtf(warp_sum(squares) / kWidth + eps);
  return {{weight.low.x * (x.low.x * scale), weight.low.y * (x.low.y * scale)},
          {weight.high.x * (x.high.x * scale), weight.high.y * (x.high.y * scale)}};
}

__device__ Quad turned(const Quad& x, const Angles& by) {
  return {{x.low.x * by.cos.x - x.high.x * by.sin.x, x.low.y * by.cos.y - x.high.y * by.sin.y},
          {x.high.x * by.cos.x + x.low.x * by.sin.x, x.high.y * by.cos.y + x.low.y * by.sin.y}};
}

__device__ void store_quad(const Quad& x, float* head) {
  *reinterpret_cast<float2*>(head + own_column()) = x.low;
  *reinterpret_cast<float2*>(head + own_column() + kHalf) = x.high;
}
__device__ void store_quad(const Quad& x, __nv_bfloat16* head) {
  *reinterpret_cast<__nv_bfloat162*>(head + own_column()) = __floats2bfloat162_rn(x.low.x, x.low.y);
  *reinterpret_cast<__nv_bfloat162*>(head + own_column() + kHalf) = __floats2bfloat162_rn(x.high.x, x.high.y);
}

// One row of q, heads first, first + kWarps, …
__device__ void queries(const AttentionRows& args, int64_t row, int first) {
  float* q = static_cast<float*>(args.q.data) + row * args.q.stride;
  auto* rounded = static_cast<__nv_bfloat16*>(args.rounded_q) + row * args.num_heads * kWidth;
  const Angles angles = load_angles(args, args.q_positions[row]);
  const Quad weight = load_weight(args.q_norm, args.norm_num);
  for (int base = first; base < args.num_heads; base += kAtOnce * kWarps) {
    Quad heads[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n)
      heads[n] = load_quad(q + static_cast<int64_t>(min(base + n * kWarps, args.num_heads - 1)) * args.query_stride);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int head = base + n * kWarps;
      if (head >= args.num_heads) return;
      if (args.q_norm != nullptr) heads[n] = normed(heads[n], weight, args.eps);
      heads[n] = turned(heads[n], angles);
      if (row >= args.q_whole_from) store_quad(heads[n], q + static_cast<int64_t>(head) * args.query_stride);
      store_quad(heads[n], rounded + head * kWidth);
    }
  }
}

// Of kMovesABlock rows all heads of k, then of v: warp after warp takes one.
template <class T>
__device__ void keys_and_values(const AttentionRows& args, int64_t first_move) {
  const int heads = 2 * args.num_kv_heads;
  const int count = static_cast<int>(min(static_cast<int64_t>(kMovesABlock), args.moves.count - first_move)) * heads;
  const Quad weight = load_weight(args.k_norm, args.norm_num);
  for (int base = static_cast<int>(threadIdx.x) / kWarp; base < count; base += kAtOnce * kWarps) {
    Quad values[kAtOnce];
    Angles angles[kAtOnce];
    RowMove moves[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) moves[n] = args.moves.listed[first_move + min(base + n * kWarps, count - 1) / heads];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int head = min(base + n * kWarps, count - 1) % heads;
      const bool is_key = head < args.num_kv_heads;
      const Mat& from = is_key ? args.k : args.v;
      values[n] = load_quad(static_cast<const float*>(from.data) + moves[n].src * from.stride +
                            (is_key ? head : head - args.num_kv_heads) * kWidth);
      if (is_key) angles[n] = load_angles(args, args.k_positions[moves[n].src]);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int at = base + n * kWarps, head = at % heads;
      if (at >= count) return;
      const bool is_key = head < args.num_kv_heads;
      if (is_key) {
        if (args.k_norm != nullptr) values[n] = normed(values[n], weight, args.eps);
        values[n] = turned(values[n], angles[n]);
      }
      const Mat& to = is_key ? args.keys : args.values;
      store_quad(values[n], static_cast<T*>(to.data) + moves[n].dst * to.stride +
                                (is_key ? head : head - args.num_kv_heads) * kWidth);
    }
  }
}

// First the rows of q, a block each, then the moves of k and v.
template <class T>
__global__ void __launch_bounds__(kThreads) prompt_rows_kernel(AttentionRows args) {
  begin_early_kernel();
  if (blockIdx.x < args.q.rows) {
    queries(args, blockIdx.x, static_cast<int>(threadIdx.x) / kWarp);
  } else {
    keys_and_values<T>(args, (blockIdx.x - args.q.rows) * kMovesABlock);
  }
}

// A block a row.
__global__ void __launch_bounds__(kThreads) heads_to_bf16_kernel(Heads x, __nv_bfloat16* out) {
  begin_early_kernel();
  const int cols = x.heads * x.width;
  const float* from = x.data + blockIdx.x * x.row_stride;
  __nv_bfloat16* to = out + static_cast<int64_t>(blockIdx.x) * cols;
  for (int at = static_cast<int>(threadIdx.x); at < cols; at += kThreads)
    to[at] = __float2bfloat16_rn(from[at / x.width * x.head_stride + at % x.width]);
}

__global__ void __launch_bounds__(kThreads) heads_from_bf16_kernel(const __nv_bfloat16* x, Heads out) {
  begin_early_kernel();
  const int cols = out.heads * out.width;
  const __nv_bfloat16* from = x + static_cast<int64_t>(blockIdx.x) * cols;
  float* to = out.data + blockIdx.x * out.row_stride;
  for (int at = static_cast<int>(threadIdx.x); at < cols; at += kThreads)
    to[at / out.width * out.head_stride + at % out.width] = __bfloat162float(from[at]);
}

}  // namespace

void heads_from_bf16(const void* x, const Heads& out, cudaStream_t stream) {
  if (out.rows == 0 || out.heads * out.width == 0) return;
  launch_early(heads_from_bf16_kernel, dim3(static_cast<unsigned>(out.rows)), kThreads, 0, stream,
               static_cast<const __nv_bfloat16*>(x), out);
}

void heads_to_bf16(const Heads& x, void* out, cudaStream_t stream) {
  if (x.rows == 0 || x.heads * x.width == 0) return;
  launch_early(heads_to_bf16_kernel, dim3(static_cast<unsigned>(x.rows)), kThreads, 0, stream, x,
               static_cast<__nv_bfloat16*>(out));
}

void prompt_rows(const AttentionRows& args, cudaStream_t stream) {
  const int64_t blocks = args.q.rows + ceil_div(args.moves.count, kMovesABlock);
  if (blocks == 0) return;
  with_num(args.keys.num, args.keys.data, [&](const auto* data) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
    launch_early(prompt_rows_kernel<T>, dim3(static_cast<unsigned>(blocks)), kThreads, 0, stream, args);
  });
}

}  // namespace lockstep::kernels::cuda
