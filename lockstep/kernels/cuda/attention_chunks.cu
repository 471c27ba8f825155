// Attention of prompts on Hopper's matrix instructions. One block stays on every multiprocessor and takes pieces of
// work: 128 pairs of a row and a head that read the same keys, 64 for each of two groups of four warps; one warp more
// has the copy engine bring queries, keys and values, 128 tokens at a time, also those of the piece that follows.
// Scores of the next tokens are computed while the values of those before are summed, and the groups take turns: one
// multiplies while the other weighs. Queries and weights of tokens are rounded to bf16, sums are float32.
#include "lockstep/kernels/cuda/attention_pairs.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/tensor_cores.cuh"
#include "lockstep/kernels/cuda/wgmma.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kWidth = 128, kTokens = 128, kSlots = 6, kHalf = kTokens * kMapCols;  // half of the columns of a block
constexpr int kPairs = kChunkWarps * 16;
constexpr int kGroupThreads = 4 * kWarp, kBlockThreads = 3 * kGroupThreads, kMultiplyingWarps = 8;
// A row's weights are taken relative to a score that follows its highest only where that is so many powers of two off:
// sums stay far from float32's limits, and what was summed is seldom to be multiplied.
constexpr float kLag = 8;

// 128 tokens of keys or of values, or as many queries, in two halves of 64 columns.
struct Block {
  __nv_bfloat16 x[2 * kHalf];
};
static_assert(kPairs == kTokens);
constexpr int kShared = 1024 + (kSlots + 1) * static_cast<int>(sizeof(Block)) + (2 * kSlots + 2) * static_cast<int>(sizeof(uint64_t));

struct Shared {
  Block *queries, *slots;
  uint64_t *asked, *taken, *full, *empty;  // of queries, then of the slots
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

// A tile of rows and the key/value head that its pairs read.
struct Work {
  AttentionTile tile;
  int kv_head = 0;
  __device__ int end() const { return tile.tokens + tile.rows - 1; }  // the last row sees most
  __device__ int blocks() const { return (end() + kTokens - 1) / kTokens; }
};

// Tiles come with the longest first. Blocks take them to and fro, so that each gets about the same.
__device__ int place_of(int round) {
  const int blocks = static_cast<int>(gridDim.x), mine = static_cast<int>(blockIdx.x);
  return round * blocks + (round % 2 == 0 ? mine : blocks - 1 - mine);
}
__device__ Work work_of(const Attention& args, int place) {
  const int kv_heads = args.num_heads / args.group;
  return {args.tiles[place / kv_heads], place % kv_heads};
}
__device__ int work_count(const Attention& args) { return args.num_rows * (args.num_heads / args.group); }

struct Maps {
  const TensorMap *queries, *keys, *values;
};

// One warp, a lane a page. Keys come a block ahead of values: K0, K1, V0, K2, V1, …
__device__ void bring(const Attention& args, const Work& work, const Maps& maps, const Shared& shared, Turn& turn, int round) {
  const int lane = static_cast<int>(threadIdx.x), page_size = args.page_size;
  const int blocks = work.blocks(), pages_a_block = kTokens / page_size;
  const int pages = (work.end() + page_size - 1) / page_size, column = work.kv_head * kWidth;
  wait_barrier(shared.taken, round % 2 ^ 1);
  if (lane == 0) {
    arrive_and_expect(shared.asked, kPairs / args.group * args.group * kWidth * 2);
    for (int half = 0; half < 2; ++half)
      copy_heads(shared.queries->x + half * kHalf, maps.queries, half * kMapCols, work.kv_head * args.group, work.tile.row, shared.asked);
  }
  const auto fill = [&](const TensorMap* map, int block) {
    const int first = block * pages_a_block, count = min(pages_a_block, pages - first);
    const int row = lane < count ? args.tables[work.tile.table + first + lane] * page_size : 0;
    uint64_t* full = shared.full + turn.slot;
    wait_barrier(shared.empty + turn.slot, turn.parity ^ 1);
    if (lane == 0) arrive_and_expect(full, count * page_size * kWidth * 2);
    __syncwarp();
    __nv_bfloat16* to = shared.slots[turn.slot].x + lane * page_size * kMapCols;
    if (lane < count)
      for (int half = 0; half < 2; ++half) copy_box(to + half * kHalf, map, column + half * kMapCols, row, full);
    turn.next();
  };
  fill(maps.keys, 0);
  for (int block = 1; block < blocks; ++block) {
    fill(maps.keys, block);
    fill(maps.values, block - 1);
  }
  fill(maps.values, blocks - 1);
}

// What a thread holds of two rows of its warp's tile.
struct State {
  float out[kWidth / 2] = {};
  float base[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, factor[2] = {1, 1};
};

// Scores become weights of tokens, in place; what was summed before is to be multiplied by `factor`. Scores times
// `scale` are powers of two.
template <bool kMasked>
__device__ __forceinline__ void weigh(State& state, float (&score)[64], const int (&tokens)[2], int first, float scale) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float highest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& one = score[n * 4 + half * 2 + j];
        if (kMasked && first + n * 8 + lane % 4 * 2 + j >= tokens[half]) one = -INFINITY;
        highest[j] = fmaxf(highest[j], one);
      }
    const float now = row_max(fmaxf(highest[0], highest[1])) * scale;
    state.factor[half] = 1;
    if (now - state.base[half] > kLag) {
      state.factor[half] = power_of_two(state.base[half] - now);
      state.base[half] = now;
    }
    const float base = state.base[half] == -INFINITY ? 0.0f : state.base[half];
    float total[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& one = score[n * 4 + half * 2 + j];
        one = power_of_two(fmaf(one, scale, -base));
        total[j] += one;
      }
    state.sum[half] = state.sum[half] * state.factor[half] + (total[0] + total[1]);  // of this lane; lanes are added at the end
  }
}

__device__ __forceinline__ void rescale(State& state) {
  if (!__any_sync(0xffffffffu, state.factor[0] != 1 || state.factor[1] != 1)) return;
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

// The queries of the warp's 16 pairs as products take them, out of the copy engine's swizzle.
__device__ __forceinline__ void load_queries(const Block& queries, int first_pair, uint32_t (&q)[8][4]) {
  const int lane = threadIdx.x % kWarp, row = first_pair + lane % 16;
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    const int piece = step % 4 * 2 + lane / 16;
    load_matrices<false>(q[step], queries.x + step / 4 * kHalf + row * kMapCols + (piece ^ row % 8) * 8);
  }
}

__device__ void store_rows(const Attention& args, const Work& work, const State& state, int first_pair) {
  const int lane = threadIdx.x % kWarp, quarter = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum(state.sum[half]), scale = 1.0f / sum;
    const Pair pair = pair_of(args, work.tile, work.kv_head, first_pair + lane / 4 + 8 * half);
    float* out = args.out + pair.row * args.out_row_stride + pair.head * args.out_head_stride + quarter * 2;
    auto* rounded = static_cast<__nv_bfloat16*>(args.rounded) +
                    (static_cast<int64_t>(pair.row) * args.num_heads + pair.head) * kWidth + quarter * 8;
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 4) {
      uint32_t pieces[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 two = {state.out[(n + i) * 4 + half * 2] * scale, state.out[(n + i) * 4 + half * 2 + 1] * scale};
        pieces[i] = pack(two.x, two.y);
        if (args.out != nullptr && pair.tokens > 0) *reinterpret_cast<float2*>(out + (n + i) * 8) = two;
      }
      if (args.rounded == nullptr) continue;
      turn_quad(pieces);
      if (pair.tokens > 0)
        *reinterpret_cast<uint4*>(rounded + n * 8) = {pieces[0], pieces[1], pieces[2], pieces[3]};
    }
  }
}

// Named barriers: 1 and 2 are each group's own, 3 and 4 say whose turn it is to multiply.
constexpr int kTurnBarrier = 3;

__device__ void attend(const Attention& args, const Work& work, const Shared& shared, Turn& turn, int group, int round) {
  const bool first_lane = threadIdx.x % kWarp == 0;
  const int first_pair = group * 64 + static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16;
  const int lane = threadIdx.x % kWarp;
  const int tokens[2] = {pair_of(args, work.tile, work.kv_head, first_pair + lane / 4).tokens,
                         pair_of(args, work.tile, work.kv_head, first_pair + lane / 4 + 8).tokens};
  const float scale = args.scale * kLog2E;
  uint32_t q[8][4];
  wait_barrier(shared.asked, round % 2);
  load_queries(*shared.queries, first_pair, q);
  if (first_lane) arrive(shared.taken);
  const int blocks = work.blocks(), last_count = work.end() - (blocks - 1) * kTokens;
  const int whole_blocks = work.tile.tokens / kTokens;  // that every row sees all of
  State state;
  float score[64];
  uint32_t weights[8][4];
  const auto weigh_block = [&](int block) {
    if (block < whole_blocks) {
      weigh<false>(state, score, tokens, block * kTokens, scale);
    } else {
      weigh<true>(state, score, tokens, block * kTokens, scale);
    }
  };
  wait_barrier(shared.full + turn.slot, turn.parity);
  fence_products();
  score_block(q, shared.slots[turn.slot], score);
  commit_products();
  wait_products<0>();
  now_there(score);
  if (first_lane) arrive(shared.empty + turn.slot);
  turn.next();
  weigh_block(0);
  pack_weights(score, weights);
  for (int block = 1; block < blocks; ++block) {
    const int keys = turn.slot;
    wait_barrier(shared.full + keys, turn.parity);
    turn.next();
    const int values = turn.slot;
    wait_barrier(shared.full + values, turn.parity);
    turn.next();
    wait_turn(kTurnBarrier + group);
    fence_products();
    score_block(q, shared.slots[keys], score);
    commit_products();
    sum_block(weights, shared.slots[values], state.out);
    commit_products();
    give_turn(kTurnBarrier + 1 - group);
    wait_products<1>();
    now_there(score);
    if (first_lane) arrive(shared.empty + keys);
    weigh_block(block);
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
  if (first_lane) arrive(shared.empty + turn.slot);
  turn.next();
  store_rows(args, work, state, first_pair);
}

__global__ void __launch_bounds__(kBlockThreads, 1)
    chunks_kernel(Attention args, const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap keys,
                  const __grid_constant__ TensorMap values) {
  extern __shared__ unsigned char room[];
  unsigned char* begin = room + (1024 - shared_address(room) % 1024) % 1024;
  auto* blocks = reinterpret_cast<Block*>(begin);
  auto* barriers = reinterpret_cast<uint64_t*>(begin + (kSlots + 1) * sizeof(Block));
  const Shared shared{blocks, blocks + 1, barriers, barriers + 1, barriers + 2, barriers + 2 + kSlots};
  if (threadIdx.x == 0) {
    init_barrier(shared.asked, 1);
    init_barrier(shared.taken, kMultiplyingWarps);
    for (int slot = 0; slot < kSlots; ++slot) {
      init_barrier(shared.full + slot, 1);
      init_barrier(shared.empty + slot, kMultiplyingWarps);
    }
    fence_barriers();
  }
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads, count = work_count(args);
  Turn turn;
  if (group == 0) {
    give_registers<40>();
    if (threadIdx.x >= kWarp) return;
    int round = 0;
    for (int place = place_of(0); place < count; place = place_of(++round))
      bring(args, work_of(args, place), {&queries, &keys, &values}, shared, turn, round);
  } else {
    take_registers<232>();
    if (group == 2) give_turn(kTurnBarrier);  // the first group begins
    int round = 0;
    for (int place = place_of(0); place < count; place = place_of(++round))
      attend(args, work_of(args, place), shared, turn, group - 1, round);
    if (group == 1) wait_turn(kTurnBarrier);  // what the second group gave last
  }
}

}  // namespace

void attention_chunks(const Attention& args, const ChunkMaps& maps, cudaStream_t stream) {
  if (args.num_rows == 0 || args.num_heads == 0) return;
  int device = 0, blocks = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
  cudaFuncSetAttribute(chunks_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const int64_t count = static_cast<int64_t>(args.num_rows) * (args.num_heads / args.group);
  chunks_kernel<<<static_cast<unsigned>(count < blocks ? count : blocks), kBlockThreads, kShared, stream>>>(
      args, maps.queries, maps.keys, maps.values);
}

}  // namespace lockstep::kernels::cuda
