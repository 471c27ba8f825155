// Grouped-query attention on tensor cores, for bf16 caches: queries and weights of tokens are rounded to bf16, sums
// are float32. A tile is 16 pairs of a row and a head that read the same keys; keys and values come into shared
// memory 64 tokens at a time. A chunk of a prompt gives every warp a tile of its own. A single row gives all warps
// the same tile and each a quarter of the tokens, merged in order at the end.
#include "lockstep/kernels/cuda/attention_tokens.cuh"
#include "lockstep/kernels/cuda/early_launch.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kChunkStages = 2;

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
      args, tile, 0, end, {}, stages, [] {}, [&](const Staged<kWidth>& stage, int first) {
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
  // Tokens before the fresh ones were cached in earlier steps: they need not wait for the kernels before.
  const auto begin_reading = [&] {
    wait_for_kernels_before();
    load_queries<kWidth>(args, pairs, q);
  };
  for_token_blocks<kWidth, 4 * kWarp, kRowStages>(
      args, tile, begin, end, {.first = tile.fresh}, stages, begin_reading, [&](const Staged<kWidth>& stage, int first) {
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
