#pragma once
// What the two kernels of attention on matrix instructions share: rows of scores as these leave them, four lanes a row.
// Included by those .cu files alone.
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"

namespace lockstep::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Over the four lanes that hold a row of a tile.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// A row of the batch, a head, and how many tokens it sees (0: no such pair).
struct Pair {
  int row = 0, head = 0, tokens = 0;
};
__device__ inline Pair pair_of(const Attention& args, const AttentionTile& tile, int kv_head, int at) {
  const int row = at / args.group;
  if (row >= tile.rows) return {};
  return {tile.row + row, kv_head * args.group + at % args.group, tile.tokens + row};
}

// 2 to the power x, 0 below the smallest normal number.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Four lanes hold piece `lane` of chunks 0 … 3 each; then lane n holds pieces 0 … 3 of chunk n.
__device__ inline void turn_quad(uint32_t (&w)[4]) {
  const bool odd = threadIdx.x % 2 != 0, upper = threadIdx.x % 4 >= 2;
#pragma unroll
  for (int n = 0; n < 4; n += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? w[n] : w[n + 1], 1);
    (odd ? w[n] : w[n + 1]) = got;
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? w[n] : w[n + 2], 2);
    (upper ? w[n] : w[n + 2]) = got;
  }
}

}  // namespace lockstep::kernels::cuda
