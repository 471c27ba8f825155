// Single rows from the products of q, k and v to the output of attention, in one kernel: heads are normed and turned, the
// row's key and value go into the caches, and its tokens are shared out among a cluster of blocks that merges their parts
// in order through its shared memory. For the rest see attention_tiles.cu, whose arithmetic this is.
#include <cooperative_groups.h>

#include "lockstep/kernels/cuda/attention_tokens.cuh"
#include "lockstep/kernels/cuda/early_launch.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kWarps = 4, kThreadsOfRow = kWarps * kWarp;

// What a block keeps beside the stages of keys and values.
template <int kWidth>
struct alignas(16) Kept {
  __nv_bfloat16 q[kPairs][kWidth + 8];  // scaled so that scores are powers of two
  __nv_bfloat16 token[2][kWidth];       // the row's own key and value
  float q_norm[kWidth], k_norm[kWidth], cos[kWidth / 2], sin[kWidth / 2];
  float highest[kWarps][kPairs], sum[kWarps][kPairs];  // of the warps; the first becomes what scales them
  float2 scales[kPairs];                               // of the block: its highest score and sum
};

// What does not depend on the kernels before.
template <int kWidth>
__device__ void load_turns(const AttentionRows& of, int row, Kept<kWidth>& kept) {
  const int at = static_cast<int>(threadIdx.x);
  if (at < kWidth && of.q_norm != nullptr) {
    kept.q_norm[at] = number_at(of.q_norm, of.norm_num, at);
    kept.k_norm[at] = number_at(of.k_norm, of.norm_num, at);
  }
  if (at < kWidth / 2) {
    const int64_t angle = of.q_positions[row] * of.table_stride + at;
    kept.cos[at] = of.cos[angle];
    kept.sin[at] = of.sin[angle];
  }
  __syncthreads();
}

__device__ float4 times(const float4& a, const float4& b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ float4 times(const float4& a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }
__device__ float4 plus(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ float4 less(const float4& a, const float4& b) { return {a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w}; }
__device__ float squares_of(const float4& a) { return a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w; }
__device__ float4 four_at(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ uint2 pack(const float4& a) { return {cuda::pack(a.x, a.y), cuda::pack(a.z, a.w)}; }

// Norms and turns the row's heads of q and, where the block has the row's own token, of k; v goes along. So many lanes
// hold a head that each has four values of either half, which turn with each other.
template <int kWidth>
__device__ void turn_heads(const Attention& args, const AttentionRows& of, const AttentionTile& tile, bool has_token,
                           Kept<kWidth>& kept) {
  constexpr int kLanes = kWidth / 8, kAtOnce = kThreadsOfRow / kLanes, kHalf = kWidth / 2;
  const int at = static_cast<int>(threadIdx.x) % kLanes * 4, kv = static_cast<int>(blockIdx.y);
  const int heads = args.group + (has_token ? 2 : 0);
  const int64_t row_in_cache =
      static_cast<int64_t>(args.tables[tile.table + (tile.tokens - 1) / args.page_size]) * args.page_size +
      (tile.tokens - 1) % args.page_size;
#pragma unroll 1
  for (int base = 0; base < heads; base += kAtOnce) {
    const int head = base + static_cast<int>(threadIdx.x) / kLanes, other = head - args.group;  // 0: key, 1: value
    const bool there = head < heads;
    const float* from = other < 0 ? args.q + tile.row * args.q_row_stride + (kv * args.group + head) * args.q_head_stride
                                  : static_cast<const float*>(other == 0 ? of.k.data : of.v.data) +
                                        tile.row * (other == 0 ? of.k.stride : of.v.stride) + kv * kWidth;
    float4 a = there ? __ldcg(reinterpret_cast<const float4*>(from + at)) : float4{};
    float4 b = there ? __ldcg(reinterpret_cast<const float4*>(from + kHalf + at)) : float4{};
    if (of.q_norm != nullptr) {
      float squares = squares_of(a) + squares_of(b);
#pragma unroll
      for (int step = kLanes / 2; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
      const float scale = 1.0f / sqrtf(squares / static_cast<float>(kWidth) + of.eps);
      const float* norm = other < 0 ? kept.q_norm : kept.k_norm;
      if (other < 1) {
        a = times(four_at(norm + at), times(a, scale));
        b = times(four_at(norm + kHalf + at), times(b, scale));
      }
    }
    if (other < 1) {
      const float4 cos = four_at(kept.cos + at), sin = four_at(kept.sin + at), first = a;
      a = less(times(a, cos), times(b, sin));
      b = plus(times(b, cos), times(first, sin));
    }
    if (!there) continue;
    if (other < 0) {
      const float scale = args.scale * kLog2E;
      *reinterpret_cast<uint2*>(&kept.q[head][at]) = pack(times(a, scale));
      *reinterpret_cast<uint2*>(&kept.q[head][kHalf + at]) = pack(times(b, scale));
      continue;
    }
    const Mat& to = other == 0 ? of.keys : of.values;
    auto* cache = static_cast<__nv_bfloat16*>(to.data) + row_in_cache * to.stride + kv * kWidth;
    *reinterpret_cast<uint2*>(cache + at) = *reinterpret_cast<uint2*>(&kept.token[other][at]) = pack(a);
    *reinterpret_cast<uint2*>(cache + kHalf + at) = *reinterpret_cast<uint2*>(&kept.token[other][kHalf + at]) = pack(b);
  }
  __syncthreads();
}

template <int kWidth>
__device__ void stage_token(const Kept<kWidth>& kept, Staged<kWidth>& stage, int at) {
  constexpr int kPieces = kWidth / 8;
  if (const int piece = static_cast<int>(threadIdx.x); piece < 2 * kPieces) {
    __nv_bfloat16* to = (piece < kPieces ? stage.keys : stage.values) + at * (kWidth + 8) + piece % kPieces * 8;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&kept.token[piece / kPieces][piece % kPieces * 8]);
  }
  __syncthreads();
}

// The warps' parts of the block's tokens, added in their order. `parts` [warps][kPairs][kWidth] is where the stages were;
// the first warp's becomes the block's.
template <int kWidth>
__device__ void add_warps(const Attention& args, const TileState<kWidth>& state, float* parts, Kept<kWidth>& kept) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = lane / 4 + 8 * half;
    if (lane % 4 == 0) {
      kept.highest[warp][at] = state.highest[half];
      kept.sum[warp][at] = state.sum[half];
    }
    float* to = parts + (warp * kPairs + at) * kWidth + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
      *reinterpret_cast<float2*>(to + n * 8) = {state.out[n][2 * half], state.out[n][2 * half + 1]};
  }
  __syncthreads();
  if (const int pair = static_cast<int>(threadIdx.x); pair < kPairs) {
    float most = -INFINITY, total = 0;
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, kept.highest[w][pair]);
    const float base = most == -INFINITY ? 0.0f : most;
    for (int w = 0; w < kWarps; ++w) {
      const float factor = exp2f(kept.highest[w][pair] - base);
      kept.highest[w][pair] = factor;
      total += kept.sum[w][pair] * factor;
    }
    kept.scales[pair] = {most, total};
  }
  __syncthreads();
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x) * 4; at < args.group * kWidth; at += kThreadsOfRow * 4) {
    float4 value = {0, 0, 0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      value = plus(value, times(four_at(parts + w * kPairs * kWidth + at), kept.highest[w][at / kWidth]));
    *reinterpret_cast<float4*>(parts + at) = value;
  }
}

// What the blocks of the cluster have of this block's share of the heads, in the order of their tokens.
template <int kWidth>
__device__ void merge_blocks(const Attention& args, const AttentionTile& tile, float* parts, Kept<kWidth>& kept) {
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const int blocks = args.num_splits;
  if (blocks > 1) {
    cluster.sync();
  } else {
    __syncthreads();
  }
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < args.group * kWidth; at += kThreadsOfRow) {
    const int pair = at / kWidth, column = at % kWidth;
    if (pair % blocks != static_cast<int>(blockIdx.x)) continue;
    float value[kMostClusterSplits];
    float2 scales[kMostClusterSplits];
    float most = -INFINITY, total = 0, sum = 0;
#pragma unroll
    for (int n = 0; n < kMostClusterSplits; ++n) {
      if (n >= blocks) break;
      scales[n] = *(blocks > 1 ? cluster.map_shared_rank(kept.scales + pair, n) : kept.scales + pair);
      value[n] = *(blocks > 1 ? cluster.map_shared_rank(parts + at, n) : parts + at);
      most = fmaxf(most, scales[n].x);
    }
    const float base = most == -INFINITY ? 0.0f : most;
#pragma unroll
    for (int n = 0; n < kMostClusterSplits; ++n) {
      if (n >= blocks) break;
      const float factor = exp2f(scales[n].x - base);
      total += factor * scales[n].y;
      sum += factor * value[n];
    }
    sum /= total;
    const int head = static_cast<int>(blockIdx.y) * args.group + pair;
    args.out[tile.row * args.out_row_stride + head * args.out_head_stride + column] = sum;
    if (auto* rounded = rounded_at(args, tile.row, head); rounded != nullptr) rounded[column] = __float2bfloat16_rn(sum);
  }
  if (blocks > 1) cluster.sync();  // nobody leaves while its part is read
}

// blockIdx: a split of the row's tokens, a key/value head, a row.
template <int kWidth>
__global__ void __launch_bounds__(kThreadsOfRow) attend_rows_kernel(Attention args, AttentionRows left) {
  let_next_kernel_come();
  extern __shared__ uint4 shared[];
  auto& kept = *reinterpret_cast<Kept<kWidth>*>(shared);
  auto* stages = reinterpret_cast<Staged<kWidth>*>(shared + sizeof(Kept<kWidth>) / sizeof(uint4));
  const AttentionTile tile = args.tiles[blockIdx.z];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const auto kv_head = static_cast<int>(blockIdx.y);
  const Pair pairs[2] = {pair_of(args, tile, kv_head, lane / 4), pair_of(args, tile, kv_head, lane / 4 + 8)};
  const int width = args.num_splits > 1 ? split_tokens(tile.tokens, args.num_splits) : tile.tokens;
  const int begin = static_cast<int>(blockIdx.x) * width, end = min(tile.tokens, begin + width), token = tile.tokens - 1;
  load_turns<kWidth>(left, tile.row, kept);
  uint32_t q[kWidth / 16][4];
  TileState<kWidth> state;
  // No other row is of this sequence: all tokens but the row's own were cached in earlier steps, and need not wait for
  // the kernels before.
  const auto begin_reading = [&] {
    wait_for_kernels_before();
    turn_heads<kWidth>(args, left, tile, begin <= token && token < end, kept);
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step)
      load_matrices<false>(q[step], &kept.q[lane % 16][step * 16 + lane / 16 * 8]);
  };
  for_token_blocks<kWidth, kThreadsOfRow, kRowStages>(
      args, tile, begin, end, {.first = token, .where = Fresh::Where::kHere}, stages, begin_reading,
      [&](Staged<kWidth>& stage, int first) {
        if (first <= token && token < first + kTokens) stage_token<kWidth>(kept, stage, token - first);
        attend_block<kWidth, 2>(state, q, stage.keys, stage.values, first, warp * 2, pairs);
      });
  auto* parts = reinterpret_cast<float*>(stages);
  add_warps<kWidth>(args, state, parts, kept);
  merge_blocks<kWidth>(args, tile, parts, kept);
}

template <int kWidth>
void run(const Attention& args, const AttentionRows& left, cudaStream_t stream) {
  constexpr int kStage = static_cast<int>(sizeof(Staged<kWidth>)), kBeside = static_cast<int>(sizeof(Kept<kWidth>));
  static_assert(kStage >= kWarps * kPairs * kWidth * static_cast<int>(sizeof(float)) && kBeside % sizeof(uint4) == 0);
  allow(attend_rows_kernel<kWidth>, kBeside + kRowStages * kStage);
  // Stages that no split comes to leave room for the kernel that comes next.
  const int64_t blocks = ceil_div(args.split_width, kTokens);
  const int stages = blocks < kRowStages ? static_cast<int>(blocks) : kRowStages;
  launch_early(attend_rows_kernel<kWidth>,
               dim3(static_cast<unsigned>(args.num_splits), static_cast<unsigned>(args.num_heads / args.group),
                    static_cast<unsigned>(args.num_rows)),
               kThreadsOfRow, static_cast<size_t>(kBeside + stages * kStage), stream,
               Clusters{static_cast<unsigned>(args.num_splits)}, args, left);
}

}  // namespace

void attend_rows(const Attention& args, const AttentionRows& left, cudaStream_t stream) {
  if (args.num_rows == 0 || args.num_heads == 0) return;
  args.value == 64 ? run<64>(args, left, stream) : run<128>(args, left, stream);
}

}  // namespace lockstep::kernels::cuda
