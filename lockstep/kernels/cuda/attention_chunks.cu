// Attention of prompts on Hopper's matrix instructions: a block takes 128 pairs of a row and a head that read the same
// keys, 64 for each of two groups of four warps; one warp more has the copy engine bring keys and values, 128 tokens at
// a time. Scores of the next tokens are computed while the values of those before are summed. Queries and weights of
// tokens are rounded to bf16, sums are float32.
#include "lockstep/kernels/cuda/attention_pairs.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/wgmma.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kWidth = 128, kTokens = 128, kSlots = 6, kHalf = kTokens * kMapCols;  // half of the columns of a block
constexpr int kGroupThreads = 4 * kWarp, kBlockThreads = 3 * kGroupThreads, kMultiplyingWarps = 8;

// 128 tokens of keys or of values, in two halves of 64 columns.
struct Block {
  __nv_bfloat16 x[2 * kHalf];
};
constexpr int kShared = 1024 + kSlots * static_cast<int>(sizeof(Block)) + 2 * kSlots * static_cast<int>(sizeof(uint64_t));

struct Shared {
  Block* slots;
  uint64_t *full, *empty;
};

struct Turn {
  int slot = 0, parity = 0;
  __device__ void next() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Keys come a block ahead of values: K0, K1, V0, K2, V1, …
__device__ void bring(const Attention& args, const AttentionTile& tile, const TensorMap* keys, const TensorMap* values,
                      const Shared& shared, int end) {
  const int blocks = (end + kTokens - 1) / kTokens, pages_a_block = kTokens / args.page_size;
  const int pages = (end + args.page_size - 1) / args.page_size, column = static_cast<int>(blockIdx.y) * kWidth;
  Turn turn;
  const auto fill = [&](const TensorMap* map, int block) {
    wait_barrier(shared.empty + turn.slot, turn.parity ^ 1);
    uint64_t* full = shared.full + turn.slot;
    __nv_bfloat16* to = shared.slots[turn.slot].x;
    const int first = block * pages_a_block, count = min(pages_a_block, pages - first);
    arrive_and_expect(full, count * args.page_size * kWidth * 2);
    for (int page = 0; page < count; ++page) {
      const int row = args.tables[tile.table + first + page] * args.page_size;
      for (int half = 0; half < 2; ++half)
        copy_box(to + half * kHalf + page * args.page_size * kMapCols, map, column + half * kMapCols, row, full);
    }
    turn.next();
  };
  fill(keys, 0);
  for (int block = 1; block < blocks; ++block) {
    fill(keys, block);
    fill(values, block - 1);
  }
  fill(values, blocks - 1);
}

struct State {
  float out[kWidth / 2] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, factor[2] = {1, 1};
};

// Scores become weights of tokens, in place; what was summed before is to be multiplied by `factor`.
__device__ __forceinline__ void weigh(State& state, float (&score)[64], const Pair (&pairs)[2], int first, bool all_seen) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float now = state.highest[half];
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& one = score[n * 4 + half * 2 + j];
        if (!all_seen && first + n * 8 + lane % 4 * 2 + j >= pairs[half].tokens) one = -INFINITY;
        now = fmaxf(now, one);
      }
    now = row_max(now);
    const float base = now == -INFINITY ? 0.0f : now;
    state.factor[half] = exp2f(state.highest[half] - base);
    state.highest[half] = now;
    float total = 0;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& one = score[n * 4 + half * 2 + j];
        one = exp2f(one - base);
        total += one;
      }
    state.sum[half] = state.sum[half] * state.factor[half] + total;  // of this lane; lanes are added at the end
  }
}

__device__ __forceinline__ void rescale(State& state) {
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) state.out[n * 4 + i] *= state.factor[i / 2];
}

__device__ __forceinline__ void pack_weights(const float (&score)[64], uint32_t (&weights)[8][4]) {
#pragma unroll
  for (int step = 0; step < 8; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = 2 * step + i / 2, at = n * 4 + i % 2 * 2;
      weights[step][i] = pack(score[at], score[at + 1]);
    }
}

__device__ __forceinline__ void score_block(const uint32_t (&q)[8][4], const Block& keys, float (&score)[64]) {
  const uint64_t halves[2] = {along_rows(keys.x), along_rows(keys.x + kHalf)};
#pragma unroll
  for (int step = 0; step < 8; ++step)
    product_with_rows(score, q[step], halves[step / 4] + step % 4 * kStepAlongRows, step > 0 ? 1 : 0);
}

__device__ __forceinline__ void sum_block(const uint32_t (&weights)[8][4], const Block& values, float (&out)[64]) {
  const uint64_t b = across_rows(values.x, kHalf * 2);
#pragma unroll
  for (int step = 0; step < 8; ++step) product_from_registers(out, weights[step], b + step * kStepAcrossRows);
}

// Rows behind the last token hold what was left there: not even a weight of 0 may meet it.
__device__ void clear_behind(Block& values, int count, int group) {
  for (int at = count * 16 + static_cast<int>(threadIdx.x) % kGroupThreads; at < kTokens * 16; at += kGroupThreads)
    *reinterpret_cast<uint4*>(values.x + at / 16 % kTokens * kMapCols + at % 16 / 8 * kHalf + at % 8 * 8) = uint4{};
  show_shared_writes();
  meet_group(group + 1);
}

__device__ void attend(const Attention& args, const AttentionTile& tile, const Shared& shared, int group, int end) {
  const int lane = threadIdx.x % kWarp;
  const bool first_lane = lane == 0;
  const int first_pair = group * 64 + static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16;
  const Pair pairs[2] = {pair_of(args, tile, first_pair + lane / 4), pair_of(args, tile, first_pair + lane / 4 + 8)};
  uint32_t q[8][4];
#pragma unroll
  for (int step = 0; step < 8; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pair& pair = pairs[i % 2];
      float2 two = {0, 0};
      if (pair.tokens > 0)
        two = *reinterpret_cast<const float2*>(args.q + pair.row * args.q_row_stride + pair.head * args.q_head_stride +
                                               step * 16 + i / 2 * 8 + lane % 4 * 2);
      const float scale = args.scale * kLog2E;  // so that scores are powers of two
      q[step][i] = pack(two.x * scale, two.y * scale);
    }
  const int blocks = (end + kTokens - 1) / kTokens;
  const int last_count = end - (blocks - 1) * kTokens;
  State state;
  float score[64];
  uint32_t weights[8][4];
  Turn turn;
  wait_barrier(shared.full + turn.slot, turn.parity);
  fence_products();
  score_block(q, shared.slots[turn.slot], score);
  commit_products();
  wait_products<0>();
  now_there(score);
  if (first_lane) arrive(shared.empty + turn.slot);
  turn.next();
  weigh(state, score, pairs, 0, kTokens <= tile.tokens);
  pack_weights(score, weights);
  for (int block = 1; block < blocks; ++block) {
    const int keys = turn.slot;
    wait_barrier(shared.full + keys, turn.parity);
    fence_products();
    score_block(q, shared.slots[keys], score);
    commit_products();
    turn.next();
    const int values = turn.slot;
    wait_barrier(shared.full + values, turn.parity);
    sum_block(weights, shared.slots[values], state.out);
    commit_products();
    turn.next();
    wait_products<1>();
    now_there(score);
    if (first_lane) arrive(shared.empty + keys);
    weigh(state, score, pairs, block * kTokens, (block + 1) * kTokens <= tile.tokens);
    wait_products<0>();
    now_there(state.out);
    if (first_lane) arrive(shared.empty + values);
    rescale(state);
    pack_weights(score, weights);
  }
  wait_barrier(shared.full + turn.slot, turn.parity);
  if (last_count < kTokens) clear_behind(shared.slots[turn.slot], last_count, group);
  fence_products();
  sum_block(weights, shared.slots[turn.slot], state.out);
  commit_products();
  wait_products<0>();
  now_there(state.out);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum(state.sum[half]);
    if (pairs[half].tokens == 0) continue;
    const int64_t column = lane % 4 * 2;
    float* out = args.out + pairs[half].row * args.out_row_stride + pairs[half].head * args.out_head_stride + column;
    auto* rounded = static_cast<__nv_bfloat16*>(args.rounded) +
                    (static_cast<int64_t>(pairs[half].row) * args.num_heads + pairs[half].head) * kWidth + column;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const float2 two = {state.out[n * 4 + half * 2] / sum, state.out[n * 4 + half * 2 + 1] / sum};
      *reinterpret_cast<float2*>(out + n * 8) = two;
      if (args.rounded != nullptr) *reinterpret_cast<__nv_bfloat162*>(rounded + n * 8) = __floats2bfloat162_rn(two.x, two.y);
    }
  }
}

__global__ void __launch_bounds__(kBlockThreads, 1)
    chunks_kernel(Attention args, const __grid_constant__ TensorMap keys, const __grid_constant__ TensorMap values) {
  extern __shared__ unsigned char room[];
  unsigned char* begin = room + (1024 - shared_address(room) % 1024) % 1024;
  auto* barriers = reinterpret_cast<uint64_t*>(begin + kSlots * sizeof(Block));
  const Shared shared{reinterpret_cast<Block*>(begin), barriers, barriers + kSlots};
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kSlots; ++slot) {
      init_barrier(shared.full + slot, 1);
      init_barrier(shared.empty + slot, kMultiplyingWarps);
    }
    fence_barriers();
  }
  __syncthreads();
  const AttentionTile tile = args.tiles[blockIdx.x];
  const int end = tile.tokens + tile.rows - 1;  // the last row sees most
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == 0) {
    give_registers<40>();
    if (threadIdx.x == 0) bring(args, tile, &keys, &values, shared, end);
  } else {
    take_registers<232>();
    attend(args, tile, shared, group - 1, end);
  }
}

}  // namespace

void attention_chunks(const Attention& args, const TensorMap& keys, const TensorMap& values, cudaStream_t stream) {
  if (args.num_rows == 0 || args.num_heads == 0) return;
  cudaFuncSetAttribute(chunks_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  chunks_kernel<<<dim3(static_cast<unsigned>(args.num_rows), static_cast<unsigned>(args.num_heads / args.group)),
                  kBlockThreads, kShared, stream>>>(args, keys, values);
}

}  // namespace lockstep::kernels::cuda
