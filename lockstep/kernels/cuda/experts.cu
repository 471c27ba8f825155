// Experts on tensor cores for few rows each: every weight is read once from memory for up to 32 rows of its
// expert, straight into the registers of the matrix instruction, 16 bytes a load. What a step of 32 values of
// depth means inside the instruction is the same permutation for both operands, so it needs no shuffling.
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/tensor_cores.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kWarps = 4;

__device__ uint4 load16(const __nv_bfloat16* from) { return *reinterpret_cast<const uint4*>(from); }
// What is read once passes the nearest cache by and is fetched from memory 256 bytes at a time.
__device__ uint4 load16_once(const __nv_bfloat16* from) {
  uint4 piece;
  asm("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
               : "l"(from));
  return piece;
}

// A few steps of 32 values of depth of both rows of weights.
constexpr int kSteps = 4;
struct Weights {
  uint4 lower[kSteps], upper[kSteps];
};

__device__ Weights load_weights(const __nv_bfloat16* lower, const __nv_bfloat16* upper, int at, int depth) {
  Weights weights;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const bool there = at + 32 * step < depth;
    weights.lower[step] = there ? load16_once(lower + at + 32 * step) : uint4{};
    weights.upper[step] = there ? load16_once(upper + at + 32 * step) : uint4{};
  }
  return weights;
}

// sum[n] += W · xᵀ for 16 rows of weights (this thread reads one of the lower and one of the upper eight) and
// 8 · kTiles rows of x. `depth` is a multiple of 32. The weights of the next steps are on their way while those of
// these are multiplied.
template <int kTiles>
__device__ void tile_product(const __nv_bfloat16* lower, const __nv_bfloat16* upper,
                             const __nv_bfloat16* const (&x)[kTiles], int depth, float (&sum)[kTiles][4]) {
  const int quad = (threadIdx.x % 4) * 8;
  Weights now = load_weights(lower, upper, quad, depth);
  for (int at = quad; at < depth; at += 32 * kSteps) {
    const Weights next = load_weights(lower, upper, at + 32 * kSteps, depth);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (at + 32 * step >= depth) break;
      const uint4 lo = now.lower[step], hi = now.upper[step];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 b = load16(x[n] + at + 32 * step);
        mma(sum[n], {lo.x, hi.x, lo.y, hi.y}, b.x, b.y);
        mma(sum[n], {lo.z, hi.z, lo.w, hi.w}, b.z, b.w);
      }
    }
    now = next;
  }
}

// Rows behind the last of the expert read its last row; what they give is not stored.
template <int kTiles>
__device__ void rows_of(const void* x, int64_t stride, int first, int last,
                        const __nv_bfloat16* (&rows)[kTiles]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
    rows[n] = static_cast<const __nv_bfloat16*>(x) + min(first + n * 8 + lane / 4, last) * stride;
}

// A warp makes 8 values of `inner` of up to 8 · kTiles rows: its 16 rows of weights are 8 of gate and 8 of up.
template <int kTiles>
__global__ void __launch_bounds__(kWarps* kWarp) inner_kernel(Experts args) {
  const int expert = static_cast<int>(blockIdx.y), lane = threadIdx.x % kWarp;
  const int begin = args.start[expert], end = args.start[expert + 1];
  const int out = (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp) * 8;
  if (begin == end || out >= args.inter) return;
  const int mine = out + lane / 4;
  const auto* gate = static_cast<const __nv_bfloat16*>(args.gate[expert]) + mine * args.gate_stride;
  const auto* up = static_cast<const __nv_bfloat16*>(args.up[expert]) + mine * args.up_stride;
  const float gate_bias = bias_of(args.gate_bias, expert, args.bias_num, mine);
  const float up_bias = bias_of(args.up_bias, expert, args.bias_num, mine);
  for (int first = begin + static_cast<int>(blockIdx.z) * 8 * kTiles; first < end;
       first += static_cast<int>(gridDim.z) * 8 * kTiles) {
    const __nv_bfloat16* x[kTiles];
    rows_of(args.x, args.x_stride, first, end - 1, x);
    float sum[kTiles][4] = {};
    tile_product(gate, up, x, args.hidden, sum);
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int slot = first + n * 8 + (lane % 4) * 2 + j;
        if (slot >= end) continue;
        static_cast<__nv_bfloat16*>(args.inner)[static_cast<int64_t>(slot) * args.inter + mine] =
            __float2bfloat16_rn(gated(sum[n][j] + gate_bias, sum[n][2 + j] + up_bias, args.gating));
      }
  }
}

// A warp makes 16 values of y.
template <int kTiles>
__global__ void __launch_bounds__(kWarps* kWarp) down_kernel(Experts args) {
  const int expert = static_cast<int>(blockIdx.y), lane = threadIdx.x % kWarp;
  const int begin = args.start[expert], end = args.start[expert + 1];
  const int out = (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp) * 16;
  if (begin == end || out >= args.hidden) return;
  const int mine = out + lane / 4;
  const auto* lower = static_cast<const __nv_bfloat16*>(args.down[expert]) + mine * args.down_stride;
  const auto* upper = lower + 8 * args.down_stride;
  const float lower_bias = bias_of(args.down_bias, expert, args.bias_num, mine);
  const float upper_bias = bias_of(args.down_bias, expert, args.bias_num, mine + 8);
  for (int first = begin + static_cast<int>(blockIdx.z) * 8 * kTiles; first < end;
       first += static_cast<int>(gridDim.z) * 8 * kTiles) {
    const __nv_bfloat16* x[kTiles];
    rows_of(args.inner, args.inter, first, end - 1, x);
    float sum[kTiles][4] = {};
    tile_product(lower, upper, x, args.inter, sum);
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int slot = first + n * 8 + (lane % 4) * 2 + j;
        if (slot >= end) continue;
        float* y = args.y + static_cast<int64_t>(slot) * args.y_stride;
        y[mine] = sum[n][j] + lower_bias;
        y[mine + 8] = sum[n][2 + j] + upper_bias;
      }
  }
}

template <int kTiles>
void run(const Experts& args, cudaStream_t stream) {
  const auto blocks = [&](int outputs, int a_warp) {
    return dim3(static_cast<unsigned>(ceil_div(outputs, kWarps * a_warp)),
                static_cast<unsigned>(args.num_experts),
                static_cast<unsigned>(expert_passes_at_once(args.slots, args.num_experts)));
  };
  inner_kernel<kTiles><<<blocks(args.inter, 8), kWarps * kWarp, 0, stream>>>(args);
  down_kernel<kTiles><<<blocks(args.hidden, 16), kWarps * kWarp, 0, stream>>>(args);
}

}  // namespace

void experts_tensor_cores(const Experts& args, cudaStream_t stream) {
  if (args.slots == 0 || args.num_experts == 0) return;
  switch (expert_rows_a_pass(args.slots, args.num_experts)) {
    case 8:
      return run<1>(args, stream);
    case 16:
      return run<2>(args, stream);
    default:
      return run<4>(args, stream);
  }
}

}  // namespace lockstep::kernels::cuda
