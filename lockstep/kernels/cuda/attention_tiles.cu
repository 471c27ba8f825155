// Grouped-query attention on tensor cores, for bf16 caches: queries and weights of tokens are rounded to bf16, sums
// are float32. A tile is 16 pairs of a row and a head that read the same keys; keys and values come into shared
// memory 64 tokens at a time. A chunk of a prompt gives every warp a tile of its own. A single row gives all warps
// the same tile and each a quarter of the tokens, merged in order at the end.
#include "lockstep/kernels/cuda/attention_pairs.cuh"
#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/tensor_cores.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kTokens = 64;
constexpr int kPairs = 16;
constexpr int kChunkStages = 2, kRowStages = 3;

// Keys, then values.
template <int kWidth>
struct Staged {
  __nv_bfloat16 keys[kTokens * (kWidth + 8)], values[kTokens * (kWidth + 8)];
};

// Begins to copy `count` tokens from `first` on, as one group; the rest of the block becomes zero.
template <int kWidth, int kThreadsOfBlock>
__device__ void load_tokens(const Attention& args, const AttentionTile& tile, int first, int count,
                            Staged<kWidth>& to) {
  constexpr int kPieces = kWidth / 8, kStride = kWidth + 8;
  for (int at = threadIdx.x; at < kTokens * kPieces; at += kThreadsOfBlock) {
    const int token = at / kPieces, piece = at % kPieces * 8;
    const int t = first + min(token, count - 1), bytes = token < count ? 16 : 0;
    const int64_t row = static_cast<int64_t>(args.tables[tile.table + t / args.page_size]) * args.page_size +
                        t % args.page_size;
    const int64_t column = static_cast<int64_t>(blockIdx.y) * kWidth + piece;
    copy16_or_zeros(to.keys + token * kStride + piece,
           static_cast<const __nv_bfloat16*>(args.k) + row * args.k_stride + column, bytes);
    copy16_or_zeros(to.values + token * kStride + piece,
           static_cast<const __nv_bfloat16*>(args.v) + row * args.v_stride + column, bytes);
  }
  commit_copies();
}

// Calls body(stage, first) for every 64 tokens of [begin, end), while those of the other stages are on their way;
// begin_reading() comes before the first and before tokens from `fresh` on are read.
template <int kWidth, int kThreadsOfBlock, int kStages, class BeginReading, class Body>
__device__ void for_token_blocks(const Attention& args, const AttentionTile& tile, int begin, int end, int fresh,
                                 Staged<kWidth>* stages, BeginReading&& begin_reading, Body&& body) {
  const auto load = [&](int first, int stage) {
    if (first < end) {
      load_tokens<kWidth, kThreadsOfBlock>(args, tile, first, min(kTokens, end - first), stages[stage]);
    } else {
      commit_copies();
    }
  };
  const bool waits = min(end, begin + (kStages - 1) * kTokens) > fresh;
  if (waits) begin_reading();
  for (int ahead = 0; ahead < kStages - 1; ++ahead) load(begin + ahead * kTokens, ahead);
  if (!waits) begin_reading();
  int stage = 0;
  for (int first = begin; first < end; first += kTokens) {
    load(first + (kStages - 1) * kTokens, stage == 0 ? kStages - 1 : stage - 1);
    wait_copies<kStages - 1>();
    __syncthreads();
    body(stages[stage], first);
    __syncthreads();
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
}

// Where the output of a row's head goes once more, or null.
__device__ __nv_bfloat16* rounded_at(const Attention& args, int row, int head) {
  if (args.rounded == nullptr) return nullptr;
  return static_cast<__nv_bfloat16*>(args.rounded) + (static_cast<int64_t>(row) * args.num_heads + head) * args.value;
}

template <int kWidth>
struct TileState {
  float out[kWidth / 8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

// 8 · kColumns tokens from `first_column` on of the block in shared memory, whose first token is `first`.
template <int kWidth, int kColumns>
__device__ void attend_block(TileState<kWidth>& state, const uint32_t (&q)[kWidth / 16][4],
                             const __nv_bfloat16* keys, const __nv_bfloat16* values, int first, int first_column,
                             const Pair (&pairs)[2]) {
  constexpr int kStride = kWidth + 8;
  const int lane = threadIdx.x % kWarp, matrix = lane / 8, row = lane % 8;
  float score[kColumns][4] = {};
#pragma unroll
  for (int column = 0; column < kColumns; ++column)
#pragma unroll
    for (int step = 0; step < kWidth / 32; ++step) {
      uint32_t b[4];
      load_matrices<false>(b, keys + ((first_column + column) * 8 + row) * kStride + step * 32 + matrix * 8);
      mma(score[column], q[2 * step], b[0], b[1]);
      mma(score[column], q[2 * step + 1], b[2], b[3]);
    }
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float now = state.highest[half];
#pragma unroll
    for (int column = 0; column < kColumns; ++column)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int token = first + (first_column + column) * 8 + lane % 4 * 2 + j;
        float& one = score[column][2 * half + j];
        if (token >= pairs[half].tokens) one = -INFINITY;
        now = fmaxf(now, one);
      }
    now = row_max(now);
    const float base = now == -INFINITY ? 0.0f : now;
    factor[half] = exp2f(state.highest[half] - base);
    state.highest[half] = now;
    float total = 0;
#pragma unroll
    for (int column = 0; column < kColumns; ++column)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& one = score[column][2 * half + j];
        one = exp2f(one - base);
        total += one;
      }
    state.sum[half] = state.sum[half] * factor[half] + row_sum(total);
  }
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) state.out[n][i] *= factor[i / 2];
#pragma unroll
  for (int step = 0; step < kColumns / 2; ++step) {
    const uint32_t p[4] = {pack(score[2 * step][0], score[2 * step][1]), pack(score[2 * step][2], score[2 * step][3]),
                           pack(score[2 * step + 1][0], score[2 * step + 1][1]),
                           pack(score[2 * step + 1][2], score[2 * step + 1][3])};
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 2) {
      uint32_t b[4];
      load_matrices<true>(b, values + (first_column * 8 + step * 16 + matrix % 2 * 8 + row) * kStride +
                                 (n + matrix / 2) * 8);
      mma(state.out[n], p, b[0], b[1]);
      mma(state.out[n + 1], p, b[2], b[3]);
    }
  }
}

// The queries of a tile, scaled so that scores are powers of two.
template <int kWidth>
__device__ void load_queries(const Attention& args, const Pair (&pairs)[2], uint32_t (&q)[kWidth / 16][4]) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pair& pair = pairs[i % 2];
      float2 two = {0, 0};
      if (pair.tokens > 0)
        two = *reinterpret_cast<const float2*>(args.q + pair.row * args.q_row_stride +
                                               pair.head * args.q_head_stride + step * 16 + i / 2 * 8 + column);
      const float scale = args.scale * kLog2E;
      q[step][i] = pack(two.x * scale, two.y * scale);
    }
}

template <int kWidth>
__device__ void store_tile(const Attention& args, const TileState<kWidth>& state, const Pair (&pairs)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (pairs[half].tokens == 0) continue;
    float* out = args.out + pairs[half].row * args.out_row_stride + pairs[half].head * args.out_head_stride +
                 threadIdx.x % 4 * 2;
    auto* rounded = rounded_at(args, pairs[half].row, pairs[half].head);
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const float2 two = {state.out[n][2 * half] / state.sum[half], state.out[n][2 * half + 1] / state.sum[half]};
      *reinterpret_cast<float2*>(out + n * 8) = two;
      if (rounded != nullptr)
        *reinterpret_cast<__nv_bfloat162*>(rounded + threadIdx.x % 4 * 2 + n * 8) = __floats2bfloat162_rn(two.x, two.y);
    }
  }
}

template <int kWidth, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) chunk_kernel(Attention args) {
  extern __shared__ uint4 shared[];
  auto* stages = reinterpret_cast<Staged<kWidth>*>(shared);
  const AttentionTile tile = args.tiles[blockIdx.x];
  const int lane = threadIdx.x % kWarp, first_pair = static_cast<int>(threadIdx.x) / kWarp * kPairs;
  const Pair pairs[2] = {pair_of(args, tile, static_cast<int>(blockIdx.y), first_pair + lane / 4), pair_of(args, tile, static_cast<int>(blockIdx.y), first_pair + lane / 4 + 8)};
  uint32_t q[kWidth / 16][4];
  load_queries<kWidth>(args, pairs, q);
  TileState<kWidth> state;
  const int end = tile.tokens + tile.rows - 1;  // the last row sees most
  for_token_blocks<kWidth, kWarps * kWarp, kChunkStages>(
      args, tile, 0, end, 0, stages, [] {}, [&](const Staged<kWidth>& stage, int first) {
        attend_block<kWidth, kTokens / 8>(state, q, stage.keys, stage.values, first, 0, pairs);
      });
  store_tile<kWidth>(args, state, pairs);
}

template <int kWidth>
__global__ void __launch_bounds__(4 * kWarp) row_kernel(Attention args) {
  let_next_kernel_come();
  extern __shared__ uint4 shared[];
  auto* stages = reinterpret_cast<Staged<kWidth>*>(shared);
  __shared__ float highest[4][kPairs], sum[4][kPairs];
  const AttentionTile tile = args.tiles[blockIdx.x];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, split = static_cast<int>(blockIdx.z);
  const Pair pairs[2] = {pair_of(args, tile, static_cast<int>(blockIdx.y), lane / 4), pair_of(args, tile, static_cast<int>(blockIdx.y), lane / 4 + 8)};
  int begin = 0, end = tile.tokens;
  if (args.num_splits > 1) {
    const int width = split_tokens(tile.tokens, args.num_splits);
    begin = split * width;
    end = min(end, begin + width);
  }
  uint32_t q[kWidth / 16][4];
  TileState<kWidth> state;
  // All tokens but the last were cached in earlier steps: they need not wait for the kernels before.
  const auto begin_reading = [&] {
    wait_for_kernels_before();
    load_queries<kWidth>(args, pairs, q);
  };
  for_token_blocks<kWidth, 4 * kWarp, kRowStages>(
      args, tile, begin, end, tile.tokens - 1, stages, begin_reading, [&](const Staged<kWidth>& stage, int first) {
        attend_block<kWidth, 2>(state, q, stage.keys, stage.values, first, warp * 2, pairs);
      });
  // The warps' parts, side by side, then added in their order by all threads.
  auto* parts = reinterpret_cast<float*>(shared);  // [warps][kPairs][kWidth]
  for (int half = 0; half < 2; ++half) {
    const int at = lane / 4 + 8 * half;
    const float total = state.sum[half];
    if (lane % 4 == 0) {
      highest[warp][at] = state.highest[half];
      sum[warp][at] = total;
    }
    for (int n = 0; n < kWidth / 8; ++n)
      *reinterpret_cast<float2*>(parts + (warp * kPairs + at) * kWidth + n * 8 + lane % 4 * 2) = {
          state.out[n][2 * half], state.out[n][2 * half + 1]};
  }
  __syncthreads();
  const bool whole = args.num_splits == 1;
  for (int at = threadIdx.x; at < args.group * kWidth; at += 4 * kWarp) {
    const int pair = at / kWidth, column = at % kWidth, head = static_cast<int>(blockIdx.y) * args.group + pair;
    const float most = fmaxf(fmaxf(highest[0][pair], highest[1][pair]), fmaxf(highest[2][pair], highest[3][pair]));
    const float base = most == -INFINITY ? 0.0f : most;
    float total = 0, value = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float factor = exp2f(highest[w][pair] - base);
      total += sum[w][pair] * factor;
      value += parts[(w * kPairs + pair) * kWidth + column] * factor;
    }
    if (whole) {
      value /= total;
      args.out[tile.row * args.out_row_stride + head * args.out_head_stride + column] = value;
      if (auto* rounded = rounded_at(args, tile.row, head); rounded != nullptr)
        rounded[column] = __float2bfloat16_rn(value);
      continue;
    }
    const int64_t query = static_cast<int64_t>(blockIdx.x) * args.num_heads + head;
    float* to = args.partial + (query * args.num_splits + split) * (kWidth + 2);
    to[column] = value;
    if (column == 0) {
      to[kWidth] = most / kLog2E;  // as the merge has it
      to[kWidth + 1] = total;
    }
  }
}

// Shared memory beyond what every kernel has, the same for every launch of a kernel: ranks on other threads ask for the
// same.
template <class Kernel>
void allow(Kernel kernel, int shared) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
}

template <int kWidth>
void run(const Attention& args, cudaStream_t stream) {
  constexpr int kChunkShared = kChunkStages * static_cast<int>(sizeof(Staged<kWidth>));
  constexpr int kRowShared = kRowStages * static_cast<int>(sizeof(Staged<kWidth>));
  static_assert(kRowShared >= 4 * kPairs * kWidth * static_cast<int>(sizeof(float)));
  const auto blocks = static_cast<unsigned>(args.num_rows), kv_heads = static_cast<unsigned>(args.num_heads / args.group);
  if (args.chunked) {
    allow(chunk_kernel<kWidth, kChunkWarps>, kChunkShared);
    chunk_kernel<kWidth, kChunkWarps><<<dim3(blocks, kv_heads), kChunkWarps * kWarp, kChunkShared, stream>>>(args);
  } else {
    allow(row_kernel<kWidth>, kRowShared);
    launch_early(row_kernel<kWidth>, dim3(blocks, kv_heads, static_cast<unsigned>(args.num_splits)), 4 * kWarp,
                 kRowShared, stream, args);
  }
}

}  // namespace

void attention_tiles(const Attention& args, cudaStream_t stream) {
  if (args.num_rows == 0 || args.num_heads == 0) return;
  if (args.value == 64) {
    run<64>(args, stream);
  } else {
    run<128>(args, stream);
  }
  if (!args.chunked && args.num_splits > 1) merge_splits(args, stream);
}

}  // namespace lockstep::kernels::cuda
