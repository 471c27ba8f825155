// Attention over the paged cache, for grouped-query heads and for MLA in both forms: a block takes one row of
// queries, up to kHeadTile of its heads that read the same keys, and one split of the tokens. Scores and sums
// are float32, tokens go in blocks of ascending order; splits are merged in ascending order.
#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kAttentionThreads = 128;

__device__ int64_t cache_row(const Attention& args, const AttentionRow& row, int token) {
  if (args.tables == nullptr) return token;
  return static_cast<int64_t>(args.tables[row.table + token / args.page_size]) * args.page_size +
         token % args.page_size;
}

struct Tile {
  int kv_head, first_head, heads;
};

// Tile `at` of the key/value heads' groups; a rank's first group may begin in its middle.
__device__ Tile tile_of(const Attention& args, int at, int tiles_of_group) {
  const int kv_head = at / tiles_of_group;
  const int begin = max(kv_head * args.group - args.first_in_group, 0);
  const int end = min((kv_head + 1) * args.group - args.first_in_group, args.num_heads);
  const int first = begin + at % tiles_of_group * kHeadTile;
  return {kv_head, first, max(0, min(kHeadTile, end - first))};
}

// Shared memory: queries [kHeadTile][key], scores [kHeadTile][kBlockTokens], rows [kBlockTokens], and for every
// head its highest score, sum and the factor of what was summed before.
template <class T, int kValuesPerThread>
__global__ void __launch_bounds__(kAttentionThreads) attention_kernel(Attention args, int tiles_of_group) {
  extern __shared__ float shared[];
  const AttentionRow row = args.rows[blockIdx.x];
  const Tile tile = tile_of(args, static_cast<int>(blockIdx.y), tiles_of_group);
  if (tile.heads == 0) return;
  const int split = static_cast<int>(blockIdx.z);
  float* q = shared;
  float* score = q + kHeadTile * args.key;
  float* highest = score + kHeadTile * kBlockTokens;
  float* sum = highest + kHeadTile;
  float* factor = sum + kHeadTile;
  auto* rows = reinterpret_cast<int64_t*>(factor + kHeadTile);
  const int seen = args.window == 0 ? 0 : max(0, row.tokens - args.window);
  int begin = seen, end = row.tokens;
  if (args.num_splits > 1) {
    const int width = split_tokens(row.tokens, args.num_splits);
    begin = max(seen, split * width);
    end = min(row.tokens, (split + 1) * width);
  }
  for (int at = threadIdx.x; at < tile.heads * args.key; at += kAttentionThreads) {
    const int head = at / args.key, i = at % args.key;
    q[at] = args.q[row.row * args.q_row_stride + (tile.first_head + head) * args.q_head_stride + i];
  }
  if (threadIdx.x < kHeadTile) {
    // A sink is as if a token of weight 1 and value 0 had passed before all others: in the first split.
    const bool sinks = args.sinks != nullptr && split == 0 && threadIdx.x < tile.heads;
    highest[threadIdx.x] =
        sinks ? number_at(args.sinks, args.sinks_num, tile.first_head + static_cast<int>(threadIdx.x)) : -INFINITY;
    sum[threadIdx.x] = sinks ? 1.0f : 0.0f;
  }
  float out[kHeadTile][kValuesPerThread] = {};
  const T* k = static_cast<const T*>(args.k) + tile.kv_head * args.k_head_stride;
  const T* k_rest = static_cast<const T*>(args.k_rest);
  const T* v = static_cast<const T*>(args.v) + tile.kv_head * args.v_head_stride;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int base = begin; base < end; base += kBlockTokens) {
    const int count = min(kBlockTokens, end - base);
    __syncthreads();
    if (threadIdx.x < count) rows[threadIdx.x] = cache_row(args, row, base + static_cast<int>(threadIdx.x));
    __syncthreads();
    // A warp a token: lanes share its key.
    for (int token = warp; token < count; token += kAttentionThreads / kWarp) {
      float dot[kHeadTile] = {};
      const T* key = k + rows[token] * args.k_stride;
      for (int i = lane; i < args.key_split; i += kWarp) {
        const float value = to_f32(key[i]);
#pragma unroll
        for (int head = 0; head < kHeadTile; ++head)
          if (head < tile.heads) dot[head] += q[head * args.key + i] * value;
      }
      const T* rest = k_rest + rows[token] * args.k_rest_stride - args.key_split;
      for (int i = args.key_split + lane; i < args.key; i += kWarp) {
        const float value = to_f32(rest[i]);
#pragma unroll
        for (int head = 0; head < kHeadTile; ++head)
          if (head < tile.heads) dot[head] += q[head * args.key + i] * value;
      }
#pragma unroll
      for (int head = 0; head < kHeadTile; ++head) {
        if (head >= tile.heads) continue;
        const float product = warp_sum(dot[head]);
        if (lane == 0) score[head * kBlockTokens + token] = args.scale * product;
      }
    }
    __syncthreads();
    for (int head = warp; head < tile.heads; head += kAttentionThreads / kWarp) {
      const float one = lane < count ? score[head * kBlockTokens + lane] : -INFINITY;
      const float before = highest[head], now = fmaxf(before, warp_max(one));
      __syncwarp();  // all lanes have read it before the first writes it
      const float weight = lane < count ? expf(one - now) : 0.0f;
      const float total = warp_sum(weight);
      score[head * kBlockTokens + lane] = weight;
      if (lane == 0) {
        factor[head] = before == -INFINITY ? 0.0f : expf(before - now);
        sum[head] = sum[head] * factor[head] + total;
        highest[head] = now;
      }
    }
    __syncthreads();
#pragma unroll
    for (int head = 0; head < kHeadTile; ++head)
      if (head < tile.heads)
#pragma unroll
        for (int j = 0; j < kValuesPerThread; ++j) out[head][j] *= factor[head];
    for (int token = 0; token < count; ++token) {
      const T* value = v + rows[token] * args.v_stride;
#pragma unroll
      for (int j = 0; j < kValuesPerThread; ++j) {
        const int i = threadIdx.x + j * kAttentionThreads;
        const float one = i < args.value ? to_f32(value[i]) : 0.0f;
#pragma unroll
        for (int head = 0; head < kHeadTile; ++head)
          if (head < tile.heads) out[head][j] += score[head * kBlockTokens + token] * one;
      }
    }
  }
  __syncthreads();
  for (int head = 0; head < tile.heads; ++head) {
    const int64_t query = static_cast<int64_t>(blockIdx.x) * args.num_heads + tile.first_head + head;
    float* to = args.num_splits > 1
                    ? args.partial + (query * args.num_splits + split) * (args.value + 2)
                    : args.out + row.row * args.out_row_stride + (tile.first_head + head) * args.out_head_stride;
    const float divisor = args.num_splits > 1 ? 1.0f : sum[head];
#pragma unroll
    for (int h = 0; h < kHeadTile; ++h)
      if (h == head)
#pragma unroll
        for (int j = 0; j < kValuesPerThread; ++j) {
          const int i = threadIdx.x + j * kAttentionThreads;
          if (i < args.value) to[i] = out[h][j] / divisor;
        }
    if (args.num_splits > 1 && threadIdx.x == 0) {
      to[args.value] = highest[head];
      to[args.value + 1] = sum[head];
    }
  }
}

// The splits of one row and head, in ascending order. A split without tokens has the sum 0.
__global__ void merge_kernel(Attention args) {
  begin_early_kernel();
  __shared__ float factors[kMostSplits];
  const int head = static_cast<int>(blockIdx.y);
  const int64_t query = static_cast<int64_t>(blockIdx.x) * args.num_heads + head;
  const float* parts = args.partial + query * args.num_splits * (args.value + 2);
  if (threadIdx.x < kWarp) {
    static_assert(kMostSplits <= kWarp);
    const int split = static_cast<int>(threadIdx.x);
    const float* part = parts + split * (args.value + 2);
    const float sum = split < args.num_splits ? part[args.value + 1] : 0.0f;
    const float mine = sum > 0 ? part[args.value] : -INFINITY;
    const float highest = warp_max(mine);
    const bool counts = sum > 0 || isnan(sum);
    const float factor = counts ? expf(part[args.value] - highest) : 0.0f;
    const float total = warp_sum(counts ? factor * sum : 0.0f);
    if (split < args.num_splits) factors[split] = factor / total;
  }
  __syncthreads();
  const int64_t row = args.tiles != nullptr ? args.tiles[blockIdx.x].row : args.rows[blockIdx.x].row;
  float* out = args.out + row * args.out_row_stride + head * args.out_head_stride;
  for (int i = threadIdx.x; i < args.value; i += blockDim.x) {
    float value = 0;
#pragma unroll 8
    for (int split = 0; split < args.num_splits; ++split)
      if (factors[split] != 0) value += factors[split] * parts[split * (args.value + 2) + i];
    out[i] = value;
    if (args.rounded != nullptr)
      static_cast<__nv_bfloat16*>(args.rounded)[(row * args.num_heads + head) * args.value + i] = __float2bfloat16_rn(value);
  }
}

template <class T>
void run(const Attention& args, cudaStream_t stream) {
  const auto tiles_of_group = static_cast<int>(head_tiles_of_group(args.group));
  const auto kv_heads = static_cast<int>(ceil_div(args.first_in_group + args.num_heads, args.group));
  const dim3 grid(static_cast<unsigned>(args.num_rows), static_cast<unsigned>(kv_heads * tiles_of_group),
                  static_cast<unsigned>(args.num_splits));
  const auto shared = static_cast<size_t>(attention_shared_bytes(args.key));
  const auto launch = [&](auto kernel) {
    kernel<<<grid, kAttentionThreads, shared, stream>>>(args, tiles_of_group);
  };
  if (args.value <= kAttentionThreads) {
    launch(attention_kernel<T, 1>);
  } else if (args.value <= 2 * kAttentionThreads) {
    launch(attention_kernel<T, 2>);
  } else {
    launch(attention_kernel<T, 4>);
  }
}

}  // namespace

void attention(const Attention& args, cudaStream_t stream) {
  if (args.num_rows == 0 || args.num_heads == 0 || args.value == 0) return;
  if (args.num == Num::kBF16) {
    run<__nv_bfloat16>(args, stream);
  } else {
    run<float>(args, stream);
  }
  if (args.num_splits > 1) merge_splits(args, stream);
}

void merge_splits(const Attention& args, cudaStream_t stream) {
  launch_early(merge_kernel, dim3(static_cast<unsigned>(args.num_rows), static_cast<unsigned>(args.num_heads)),
               static_cast<unsigned>(args.value < 256 ? ceil_div(args.value, kWarp) * kWarp : 256), 0, stream, args);
}

}  // namespace lockstep::kernels::cuda
