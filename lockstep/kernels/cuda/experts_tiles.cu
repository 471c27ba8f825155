// Experts on tensor cores for many rows each: blocks of 128 rows by 128 outputs, both operands staged in shared
// memory while the block before them is multiplied.
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/tensor_cores.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kTile = 128, kDepth = 32, kStride = kDepth + 8, kBlockThreads = 256;

struct Stage {
  __nv_bfloat16 x[kTile * kStride], w[kTile * kStride];
};

// sum[m][n] of a warp: rows 32 · (warp / 2) + 16 m, outputs 64 · (warp % 2) + 8 n of the block. `x_row(r)` and
// `w_row(r)` give where row r of the block's operands begins.
template <class XRow, class WRow>
__device__ void block_product(Stage* stages, int depth, XRow x_row, WRow w_row, float (&sum)[2][8][4]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  // Each thread stages two pieces of 16 bytes of each operand: rows r and r + 64.
  const int row = static_cast<int>(threadIdx.x) / 4, piece = static_cast<int>(threadIdx.x) % 4 * 8;
  const __nv_bfloat16* x[2] = {x_row(row) + piece, x_row(row + 64) + piece};
  const __nv_bfloat16* w[2] = {w_row(row) + piece, w_row(row + 64) + piece};
  const auto stage = [&](int at) {
    Stage& to = stages[at / kDepth % 2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      copy16(to.x + (row + 64 * i) * kStride + piece, x[i] + at);
      copy16(to.w + (row + 64 * i) * kStride + piece, w[i] + at);
    }
    commit_copies();
  };
  stage(0);
  for (int at = 0; at < depth; at += kDepth) {
    if (at + kDepth < depth) {
      stage(at + kDepth);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    const Stage& now = stages[at / kDepth % 2];
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
      uint32_t a[2][4], b[4][4];
#pragma unroll
      for (int m = 0; m < 2; ++m)  // matrices: rows 0-7, rows 8-15, then the same of the next 8 values
        load_matrices<false>(a[m], now.x + (warp / 2 * 32 + m * 16 + lane % 16) * kStride + step * 16 + lane / 16 * 8);
#pragma unroll
      for (int n = 0; n < 4; ++n)  // two groups of 8 outputs, each both halves of the 16 values
        load_matrices<false>(b[n], now.w + (warp % 2 * 64 + n * 16 + lane / 16 * 8 + lane % 8) * kStride + step * 16 +
                                lane / 8 % 2 * 8);
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 8; ++n) mma(sum[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
    __syncthreads();
  }
}

// The block's outputs alternate: 8 of gate, 8 of up, so that a thread holds both of a value.
__global__ void __launch_bounds__(kBlockThreads) inner_tiles_kernel(Experts args) {
  __shared__ Stage stages[2];
  const int expert = static_cast<int>(blockIdx.y), begin = args.start[expert], end = args.start[expert + 1];
  const int first_out = static_cast<int>(blockIdx.x) * (kTile / 2), lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  for (int first = begin + static_cast<int>(blockIdx.z) * kTile; first < end;
       first += static_cast<int>(gridDim.z) * kTile) {
    float sum[2][8][4] = {};
    block_product(
        stages, args.hidden,
        [&](int row) {
          return static_cast<const __nv_bfloat16*>(args.x) + min(first + row, end - 1) * args.x_stride;
        },
        [&](int row) {
          const int out = min(first_out + row / 16 * 8 + row % 8, args.inter - 1);
          return row / 8 % 2 == 0 ? static_cast<const __nv_bfloat16*>(args.gate[expert]) + out * args.gate_stride
                                  : static_cast<const __nv_bfloat16*>(args.up[expert]) + out * args.up_stride;
        },
        sum);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 8; n += 2)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int slot = first + warp / 2 * 32 + m * 16 + i / 2 * 8 + lane / 4;
          const int out = first_out + warp % 2 * 32 + n / 2 * 8 + lane % 4 * 2 + i % 2;
          if (slot >= end || out >= args.inter) continue;
          const float g = sum[m][n][i] + bias_of(args.gate_bias, expert, args.bias_num, out);
          const float u = sum[m][n + 1][i] + bias_of(args.up_bias, expert, args.bias_num, out);
          static_cast<__nv_bfloat16*>(args.inner)[static_cast<int64_t>(slot) * args.inter + out] =
              __float2bfloat16_rn(gated(g, u, args.gating));
        }
  }
}

__global__ void __launch_bounds__(kBlockThreads) down_tiles_kernel(Experts args) {
  __shared__ Stage stages[2];
  const int expert = static_cast<int>(blockIdx.y), begin = args.start[expert], end = args.start[expert + 1];
  const int first_out = static_cast<int>(blockIdx.x) * kTile, lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  for (int first = begin + static_cast<int>(blockIdx.z) * kTile; first < end;
       first += static_cast<int>(gridDim.z) * kTile) {
    float sum[2][8][4] = {};
    block_product(
        stages, args.inter,
        [&](int row) {
          return static_cast<const __nv_bfloat16*>(args.inner) +
                 static_cast<int64_t>(min(first + row, end - 1)) * args.inter;
        },
        [&](int row) {
          return static_cast<const __nv_bfloat16*>(args.down[expert]) +
                 min(first_out + row, args.hidden - 1) * args.down_stride;
        },
        sum);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int slot = first + warp / 2 * 32 + m * 16 + i / 2 * 8 + lane / 4;
          const int out = first_out + warp % 2 * 64 + n * 8 + lane % 4 * 2 + i % 2;
          if (slot < end && out < args.hidden)
            args.y[static_cast<int64_t>(slot) * args.y_stride + out] =
                sum[m][n][i] + bias_of(args.down_bias, expert, args.bias_num, out);
        }
  }
}

}  // namespace

void experts_tiles(const Experts& args, cudaStream_t stream) {
  if (args.slots == 0 || args.num_experts == 0) return;
  const auto experts = static_cast<unsigned>(args.num_experts);
  const auto passes = static_cast<unsigned>(expert_tiles_at_once(args.slots, args.num_experts));
  inner_tiles_kernel<<<dim3(static_cast<unsigned>(ceil_div(args.inter, kTile / 2)), experts, passes), kBlockThreads, 0,
                       stream>>>(args);
  down_tiles_kernel<<<dim3(static_cast<unsigned>(ceil_div(args.hidden, kTile)), experts, passes), kBlockThreads, 0,
                      stream>>>(args);
}

}  // namespace lockstep::kernels::cuda
