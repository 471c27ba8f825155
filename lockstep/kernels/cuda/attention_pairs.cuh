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
__device__ inline Pair pair_of(const Attention& args, const AttentionTile& tile, int at) {
  const int row = at / args.group;
  if (row >= tile.rows) return {};
  return {tile.row + row, static_cast<int>(blockIdx.y) * args.group + at % args.group, tile.tokens + row};
}

}  // namespace lockstep::kernels::cuda
