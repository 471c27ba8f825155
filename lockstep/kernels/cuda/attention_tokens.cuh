#pragma once
// What the kernels of attention on tensor cores share that read keys and values 64 tokens at a time: how these come into
// shared memory, and what a warp does with them. Included by those .cu files alone.
#include "lockstep/kernels/cuda/attention_pairs.cuh"
#include "lockstep/kernels/cuda/tensor_cores.cuh"

namespace lockstep::kernels::cuda {

inline constexpr int kTokens = 64, kPairs = 16;
inline constexpr int kRowStages = 3;  // of blocks of tokens, of a kernel of single rows

// Keys, then values.
template <int kWidth>
struct Staged {
  __nv_bfloat16 keys[kTokens * (kWidth + 8)], values[kTokens * (kWidth + 8)];
};

// Begins to copy `count` tokens from `first` on, as one group; the rest of the block, or all of it, becomes zero.
template <int kWidth, int kThreadsOfBlock>
__device__ void load_tokens(const Attention& args, const AttentionTile& tile, int first, int count,
                            Staged<kWidth>& to) {
  constexpr int kPieces = kWidth / 8, kStride = kWidth + 8;
  for (int at = threadIdx.x; at < kTokens * kPieces; at += kThreadsOfBlock) {
    const int token = at / kPieces, piece = at % kPieces * 8;
    const int t = max(first + min(token, count - 1), 0), bytes = token < count ? 16 : 0;
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

// Tokens from `first` on, which are not read before begin_reading(): the kernels before write them, or, where they are
// not cached, this one has them itself.
struct Fresh {
  int first = 0;
  enum class Where : uint8_t { kCached, kHere } where = Where::kCached;
};

// Calls body(stage, first) for every 64 tokens of [begin, end), while those of the other stages are on their way;
// begin_reading() comes before the first and before fresh tokens are read. Those that are here are zero in the stage.
template <int kWidth, int kThreadsOfBlock, int kStages, class BeginReading, class Body>
__device__ void for_token_blocks(const Attention& args, const AttentionTile& tile, int begin, int end, const Fresh& fresh,
                                 Staged<kWidth>* stages, BeginReading&& begin_reading, Body&& body) {
  const bool is_cached = fresh.where == Fresh::Where::kCached;
  const int cached = is_cached ? end : min(end, fresh.first);
  const auto load = [&](int first, int stage) {
    if (first < end) {
      load_tokens<kWidth, kThreadsOfBlock>(args, tile, first, min(kTokens, cached - first), stages[stage]);
    } else {
      commit_copies();
    }
  };
  const bool waits = is_cached && min(end, begin + (kStages - 1) * kTokens) > fresh.first;
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
__device__ inline __nv_bfloat16* rounded_at(const Attention& args, int row, int head) {
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

// Shared memory beyond what every kernel has, the same for every launch of a kernel: ranks on other threads ask for the
// same.
template <class Kernel>
void allow(Kernel kernel, int shared) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
}

}  // namespace lockstep::kernels::cuda
