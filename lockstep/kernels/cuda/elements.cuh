#pragma once
// Elements of either dtype on the device, and sums over a warp or a block in a fixed order.
#include <cuda_bf16.h>

#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/launch_sequences.h"

namespace lockstep::kernels::cuda {

__device__ inline float to_f32(float value) { return value; }
__device__ inline float to_f32(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline void store(float* to, float value) { *to = value; }
__device__ inline void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }

__device__ inline float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// NaN stays.
__device__ inline float gated(float gate, float up, const Gate& gating) {
  const float g = gate > gating.limit ? gating.limit : gate;
  const float u = up > gating.limit ? gating.limit : up < -gating.limit ? -gating.limit : up;
  return g / (1.0f + expf(-(gating.alpha * g))) * (u + gating.up_shift);
}

__device__ inline float number_at(const void* data, Num num, int64_t at) {
  return num == Num::kBF16 ? to_f32(static_cast<const __nv_bfloat16*>(data)[at])
                           : static_cast<const float*>(data)[at];
}

// The number `at` of an expert's bias; 0 without one.
__device__ inline float bias_of(const void* const* biases, int expert, Num num, int64_t at) {
  if (biases == nullptr || biases[expert] == nullptr) return 0.0f;
  return number_at(biases[expert], num, at);
}

// Every thread of the block gets the sum; blockDim.x is a whole number of warps.
__device__ inline float block_sum(float value) {
  __shared__ float of_warp[32];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0.0f);
}

// Of each of the splits of a row with so many tokens.
__device__ inline int split_tokens(int tokens, int splits) {
  constexpr int kWhole = static_cast<int>(kSplitTokens);
  return max(1, ((tokens + splits - 1) / splits + kWhole - 1) / kWhole) * kWhole;
}

// Calls body(const T*) with the element type of `num`.
template <class Body>
void with_num(Num num, const void* data, Body&& body) {
  if (num == Num::kBF16) {
    body(static_cast<const __nv_bfloat16*>(data));
  } else {
    body(static_cast<const float*>(data));
  }
}

}  // namespace lockstep::kernels::cuda
