// Routing, and the way of rows to the experts of a rank and back.
#include <cooperative_groups.h>

#include <cfloat>

#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr float kWeightFloor = 1e-20f;  // keeps the quotient of weights defined when every chosen score is zero

struct Best {
  float value;
  int idx;
};

// Of equals the smaller index; idx -1 is worse than all.
__device__ bool better(const Best& a, const Best& b) {
  if (a.idx < 0 || b.idx < 0) return a.idx >= 0;
  return a.value != b.value ? a.value > b.value : a.idx < b.idx;
}

__device__ Best warp_best(Best best) {
  for (int step = 16; step > 0; step /= 2) {
    const Best other{__shfl_xor_sync(0xffffffffu, best.value, step),
                     __shfl_xor_sync(0xffffffffu, best.idx, step)};
    if (better(other, best)) best = other;
  }
  return best;
}

// The best of those not yet taken, the same in every lane.
__device__ Best take_best(const float* value, const uint8_t* taken, int count) {
  Best best{-INFINITY, -1};
  for (int at = threadIdx.x; at < count; at += kWarp) {
    const Best one{value[at], at};
    if (!taken[at] && better(one, best)) best = one;
  }
  return warp_best(best);
}

__device__ void score_row(const Route& args, const float* logits, float* score, int experts) {
  if (args.sigmoid) {
    for (int e = threadIdx.x; e < experts; e += kWarp) score[e] = 1.0f / (1.0f + expf(-logits[e]));
    return;
  }
  float highest = -INFINITY;
  for (int e = threadIdx.x; e < experts; e += kWarp) highest = fmaxf(highest, logits[e]);
  highest = warp_max(highest);
  float sum = 0;
  for (int e = threadIdx.x; e < experts; e += kWarp) {
    score[e] = expf(logits[e] - highest);
    sum += score[e];
  }
  sum = warp_sum(sum);
  for (int e = threadIdx.x; e < experts; e += kWarp) score[e] /= sum;
}

// Marks the experts of all but the best groups as taken.
__device__ void drop_groups(const Route& args, const float* biased, uint8_t* taken, float* group_score,
                            uint8_t* group_taken, int experts) {
  const int size = experts / args.num_groups;
  for (int group = threadIdx.x; group < args.num_groups; group += kWarp) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = group * size; e < (group + 1) * size; ++e) {
      if (biased[e] > first) {
        second = first;
        first = biased[e];
      } else if (biased[e] > second) {
        second = biased[e];
      }
    }
    group_score[group] = size < 2 || args.groups_by_best ? first : first + second;
    group_taken[group] = 0;
  }
  __syncwarp();
  for (int n = 0; n < args.top_groups; ++n) {
    const Best best = take_best(group_score, group_taken, args.num_groups);
    __syncwarp();
    if (threadIdx.x == 0) group_taken[best.idx] = 1;
    __syncwarp();
  }
  for (int e = threadIdx.x; e < experts; e += kWarp) taken[e] = group_taken[e / size] ? 0 : 1;
  __syncwarp();
}

// A warp a row.
__global__ void route_kernel(Route args) {
  begin_early_kernel();
  extern __shared__ float shared[];
  const int64_t row = blockIdx.x;
  const int experts = static_cast<int>(args.logits.cols);
  float* score = shared;
  float* biased = score + experts;
  float* group_score = biased + experts;
  auto* taken = reinterpret_cast<uint8_t*>(group_score + args.num_groups);
  uint8_t* group_taken = taken + experts;
  int32_t* idx = args.expert_idx + row * args.idx_stride;
  float* weight = static_cast<float*>(args.weight.data) + row * args.weight.stride;
  if (args.valid[row] == 0) {
    for (int k = threadIdx.x; k < args.top_k; k += kWarp) {
      idx[k] = -1;
      weight[k] = 0;
    }
    return;
  }
  score_row(args, static_cast<const float*>(args.logits.data) + row * args.logits.stride, score, experts);
  __syncwarp();
  for (int e = threadIdx.x; e < experts; e += kWarp) {
    const float value = args.bias == nullptr ? score[e] : score[e] + args.bias[e];
    biased[e] = isnan(value) ? -INFINITY : value;
    taken[e] = 0;
  }
  __syncwarp();
  if (args.top_groups < args.num_groups) drop_groups(args, biased, taken, group_score, group_taken, experts);
  float divisor = kWeightFloor;
  for (int k = 0; k < args.top_k; ++k) {
    const Best best = take_best(biased, taken, experts);
    __syncwarp();
    divisor += score[best.idx];
    if (threadIdx.x == 0) {
      taken[best.idx] = 1;
      idx[k] = best.idx;
    }
    __syncwarp();
  }
  if (!args.normalised) divisor = 1;
  for (int k = threadIdx.x; k < args.top_k; k += kWarp) weight[k] = score[idx[k]] / divisor * args.scale;
}

// A number whose order as an unsigned one is the float's; 0 is below all.
__device__ uint32_t order_of(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ void route_nowhere(const Route& args, int64_t row) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane >= args.top_k) return;
  args.expert_idx[row * args.idx_stride + lane] = -1;
  static_cast<float*>(args.weight.data)[row * args.weight.stride + lane] = 0;
}

// Without groups, of up to kOfALane experts a lane, which stay in registers: by one warp.
template <int kOfALane>
__device__ void route_row(const Route& args, int64_t row, const float* logits) {
  const int experts = static_cast<int>(args.logits.cols), lane = static_cast<int>(threadIdx.x) % kWarp;
  int32_t* idx = args.expert_idx + row * args.idx_stride;
  float* weight = static_cast<float*>(args.weight.data) + row * args.weight.stride;
  float score[kOfALane];
  float highest = -INFINITY, sum = 0;
#pragma unroll
  for (int j = 0; j < kOfALane; ++j) {
    score[j] = j * kWarp + lane < experts ? logits[j * kWarp + lane] : -INFINITY;
    highest = fmaxf(highest, score[j]);
  }
  highest = warp_max(highest);
#pragma unroll
  for (int j = 0; j < kOfALane; ++j) {
    if (args.sigmoid) {
      score[j] = 1.0f / (1.0f + expf(-score[j]));
    } else {
      score[j] = j * kWarp + lane < experts ? expf(score[j] - highest) : 0.0f;
      sum += score[j];
    }
  }
  if (!args.sigmoid) sum = warp_sum(sum);
  uint32_t order[kOfALane];
#pragma unroll
  for (int j = 0; j < kOfALane; ++j) {
    const int expert = j * kWarp + lane;
    if (!args.sigmoid) score[j] /= sum;
    float biased = args.bias == nullptr || expert >= experts ? score[j] : score[j] + args.bias[expert];
    if (isnan(biased)) biased = -INFINITY;
    order[j] = expert < experts ? order_of(biased) : 0;
  }
  float divisor = kWeightFloor, mine = 0;
  int my_idx = 0;
  for (int k = 0; k < args.top_k; ++k) {
    uint32_t best = order[0];
    int at = 0;
#pragma unroll
    for (int j = 1; j < kOfALane; ++j)
      if (order[j] > best) {
        best = order[j];
        at = j;
      }
    const uint32_t most = __reduce_max_sync(0xffffffffu, best);
    const int chosen = __reduce_min_sync(0xffffffffu, best == most ? at * kWarp + lane : INT32_MAX);
    float of_chosen = 0;
#pragma unroll
    for (int j = 0; j < kOfALane; ++j)
      if (j * kWarp + lane == chosen) {
        of_chosen = score[j];
        order[j] = 0;
      }
    of_chosen = __shfl_sync(0xffffffffu, of_chosen, chosen % kWarp);
    divisor += of_chosen;
    if (lane == k) {
      mine = of_chosen;
      my_idx = chosen;
    }
  }
  if (lane >= args.top_k) return;
  idx[lane] = my_idx;
  weight[lane] = mine / (args.normalised ? divisor : 1.0f) * args.scale;
}

template <int kOfALane>
__global__ void __launch_bounds__(kWarp) route_in_registers(Route args) {
  begin_early_kernel();
  const int64_t row = blockIdx.x;
  if (args.valid[row] == 0) return route_nowhere(args, row);
  route_row<kOfALane>(args, row, static_cast<const float*>(args.logits.data) + row * args.logits.stride);
}

// The product that gives a row's logits and its routing in one kernel: a cluster of blocks a row, a warp every so many
// experts, whose logits the cluster's first block gathers in its shared memory. x is not rounded. The weights of a
// warp's first expert, of up to kAheadPieces pieces a lane, are on their way before x is there.
constexpr int kRouteBlocks = 8, kRouteThreads = 512, kAheadPieces = 8;
constexpr int kWarpsOfRouter = kRouteBlocks * kRouteThreads / kWarp;

__device__ float dot8(const uint4& w, const float* x) {
  const float4 a = *reinterpret_cast<const float4*>(x), b = *reinterpret_cast<const float4*>(x + 4);
  const auto low = [](uint32_t pair) { return __uint_as_float(pair << 16); };
  const auto high = [](uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); };
  return low(w.x) * a.x + high(w.x) * a.y + low(w.y) * a.z + high(w.y) * a.w + low(w.z) * b.x + high(w.z) * b.y +
         low(w.w) * b.z + high(w.w) * b.w;
}

template <int kOfALane>
__global__ void __launch_bounds__(kRouteThreads, 2) product_and_route_kernel(RouterProduct of, Route args) {
  let_next_kernel_come();
  extern __shared__ float4 row_of_x[];
  __shared__ float gathered[kOfALane * kWarp];
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  cluster.barrier_arrive();
  const int64_t row = blockIdx.y;
  const int experts = static_cast<int>(args.logits.cols), lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(blockIdx.x) * (kRouteThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  const int pieces = static_cast<int>(of.x.cols) / 8;
  const auto* w = static_cast<const __nv_bfloat16*>(of.w.data);
  uint4 ahead[kAheadPieces];
#pragma unroll
  for (int j = 0; j < kAheadPieces; ++j)
    if (first < experts && j * kWarp + lane < pieces)
      ahead[j] = __ldg(reinterpret_cast<const uint4*>(w + first * of.w.stride) + j * kWarp + lane);
  wait_for_kernels_before();
  const auto* x = reinterpret_cast<const float4*>(static_cast<const float*>(of.x.data) + row * of.x.stride);
  for (int at = static_cast<int>(threadIdx.x); at < 2 * pieces; at += kRouteThreads) row_of_x[at] = __ldcg(x + at);
  __syncthreads();
  cluster.barrier_wait();  // the first block is there
  float* logits = cluster.map_shared_rank(gathered, 0);
  const auto* shared_x = reinterpret_cast<const float*>(row_of_x);
  const auto put = [&](int expert, float sum) {
    sum = warp_sum(sum);
    if (lane != 0) return;
    if (of.bias != nullptr) sum += number_at(of.bias, of.bias_num, expert);
    logits[expert] = sum;
    static_cast<float*>(args.logits.data)[row * args.logits.stride + expert] = sum;
  };
  const auto rest_of = [&](int expert, int from) {
    float sum = 0;
#pragma unroll 1
    for (int at = from + lane; at < pieces; at += kWarp)
      sum += dot8(__ldg(reinterpret_cast<const uint4*>(w + expert * of.w.stride) + at), shared_x + at * 8);
    return sum;
  };
  if (first < experts) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kAheadPieces; ++j)
      if (const int at = j * kWarp + lane; at < pieces) sum += dot8(ahead[j], shared_x + at * 8);
    put(first, sum + rest_of(first, kAheadPieces * kWarp));
  }
#pragma unroll 1
  for (int expert = first + kWarpsOfRouter; expert < experts; expert += kWarpsOfRouter) put(expert, rest_of(expert, 0));
  cluster.sync();
  if (blockIdx.x != 0 || threadIdx.x >= kWarp) return;
  if (args.valid[row] == 0) return route_nowhere(args, row);
  route_row<kOfALane>(args, row, gathered);
}

// Entries of all sources, one behind the other.
struct Entry {
  int source = 0;
  int64_t at = 0;
};
__device__ Entry entry_of(const Place& args, int64_t at) {
  Entry entry{0, at};
  while (entry.at >= args.sources[entry.source].rows * args.top_k)
    entry.at -= args.sources[entry.source++].rows * args.top_k;
  return entry;
}

// The local expert of an entry, or -1.
__device__ int local_of(const Place& args, const Entry& entry) {
  const int local = args.sources[entry.source].expert_idx[entry.at] - args.first_expert;
  return local >= 0 && local < args.num_local ? local : -1;
}

// Block n counts how many of its kThreads entries each local expert has.
__global__ void count_kernel(Place args, int64_t entries) {
  extern __shared__ int32_t counts[];
  for (int e = threadIdx.x; e < args.num_local; e += kThreads) counts[e] = 0;
  __syncthreads();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < entries)
    if (const int local = local_of(args, entry_of(args, at)); local >= 0) atomicAdd(counts + local, 1);
  __syncthreads();
  for (int e = threadIdx.x; e < args.num_local; e += kThreads)
    args.counts[static_cast<int64_t>(blockIdx.x) * args.num_local + e] = counts[e];
}

// A block an expert: its entries before each block of entries; then all of them.
__global__ void __launch_bounds__(kThreads) sum_counts_kernel(int32_t* counts, int32_t* totals, int num_local, int num_blocks) {
  __shared__ int32_t of_warp[kThreads / kWarp];
  const int e = static_cast<int>(blockIdx.x), lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int before = 0;
  for (int base = 0; base < num_blocks; base += kThreads) {
    const int block = base + static_cast<int>(threadIdx.x);
    int32_t* count = counts + static_cast<int64_t>(block) * num_local + e;
    const int own = block < num_blocks ? *count : 0;
    int sum = own;
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    __syncthreads();
    if (lane == kWarp - 1) of_warp[warp] = sum;
    __syncthreads();
    int all = 0, of_warps_before = 0;
    for (int other = 0; other < kThreads / kWarp; ++other) {
      if (other == warp) of_warps_before = all;
      all += of_warp[other];
    }
    if (block < num_blocks) *count = before + of_warps_before + sum - own;
    before += all;
  }
  if (threadIdx.x == 0) totals[e] = before;
}

// One warp: where the slots of every expert begin.
__global__ void start_kernel(const int32_t* totals, int32_t* start, int num_local) {
  int before = 0;
  for (int base = 0; base < num_local; base += kWarp) {
    const int e = base + static_cast<int>(threadIdx.x);
    const int own = e < num_local ? totals[e] : 0;
    int sum = own;
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (static_cast<int>(threadIdx.x) >= step) sum += other;
    }
    if (e < num_local) start[e] = before + sum - own;
    before += __shfl_sync(0xffffffffu, sum, kWarp - 1);
  }
  if (threadIdx.x == 0) start[num_local] = before;
}

// Block n gives its entries their slots, warp after warp, so that those of an expert stand in their order; what is
// behind the last slot in use says so.
__global__ void place_kernel(Place args, int64_t entries) {
  extern __shared__ int32_t next[];
  for (int e = threadIdx.x; e < args.num_local; e += kThreads)
    next[e] = args.start[e] + args.counts[static_cast<int64_t>(blockIdx.x) * args.num_local + e];
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const Entry entry = at < entries ? entry_of(args, at) : Entry{};
  const int local = at < entries ? local_of(args, entry) : -1;
  const unsigned same = __match_any_sync(0xffffffffu, local);
  const int lane = threadIdx.x % kWarp, ahead = __popc(same & ((1u << lane) - 1));
  int slot = -1;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) {
    __syncthreads();
    if (threadIdx.x / kWarp != warp || local < 0) continue;
    slot = next[local] + ahead;
    __syncwarp(same);
    if (ahead == 0) next[local] += __popc(same);
  }
  if (at < entries) args.sources[entry.source].slot_of[entry.at] = slot;
  if (slot >= 0) args.moves[slot] = {entry.source, static_cast<int32_t>(entry.at / args.top_k), slot};
  for (int64_t behind = args.start[args.num_local] + at; behind < args.capacity;
       behind += static_cast<int64_t>(gridDim.x) * kThreads)
    args.moves[behind] = {0, 0, -1};
}

constexpr int kMostPulled = 64;  // slots of a row that are looked up before the first is read

// A thread a column, a block some columns of one row.
__global__ void pull_kernel(Pull args) {
  begin_early_kernel();
  __shared__ const float* from[kMostPulled];
  __shared__ float weights[kMostPulled];
  const int64_t row = blockIdx.x, column = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  float sum = 0;
  const int total = args.top_k * args.num_sources;  // in the order of k, then of the sources
  for (int first = 0; first < total; first += kMostPulled) {
    const int count = min(kMostPulled, total - first);
    __syncthreads();
    for (int at = threadIdx.x; at < count; at += blockDim.x) {
      const int k = (first + at) / args.num_sources, source = (first + at) % args.num_sources;
      const int slot = args.slot_of[source][row * args.top_k + k];
      from[at] = slot < 0 ? nullptr : static_cast<const float*>(args.y[source]) + slot * args.y_stride[source];
      weights[at] = args.weight[row * args.top_k + k];
    }
    __syncthreads();
    if (column >= args.out.cols) continue;
#pragma unroll 8
    for (int at = 0; at < count; ++at)
      if (from[at] != nullptr) sum += weights[at] * from[at][column];
  }
  if (column >= args.out.cols) return;
  if (args.plus.data != nullptr) sum += static_cast<const float*>(args.plus.data)[row * args.plus.stride + column];
  static_cast<float*>(args.out.data)[row * args.out.stride + column] = sum;
  if (args.onto.data != nullptr) static_cast<float*>(args.onto.data)[row * args.onto.stride + column] += sum;
}

// Block n finds the slot of entry n, source after source, and copies its row there; the last block counts.
__global__ void __launch_bounds__(kThreads) place_entries_kernel(Place args, int entries) {
  begin_early_kernel();
  __shared__ int32_t counts[kFewExperts];
  const auto local_of = [&](int source, int at) { return cuda::local_of(args, {source, at}); };
  const int mine = static_cast<int>(blockIdx.x);
  if (mine == entries) {
    for (int e = threadIdx.x; e < args.num_local; e += kThreads) counts[e] = 0;
    __syncthreads();
    for (int s = 0; s < args.num_sources; ++s)
      for (int at = threadIdx.x; at < args.sources[s].rows * args.top_k; at += kThreads)
        if (const int local = local_of(s, at); local >= 0) atomicAdd(counts + local, 1);
    __syncthreads();
    if (threadIdx.x >= kWarp) return;
    int before = 0;
    for (int base = 0; base < args.num_local; base += kWarp) {
      const int e = base + static_cast<int>(threadIdx.x);
      const int own = e < args.num_local ? counts[e] : 0;
      int sum = own;
      for (int step = 1; step < kWarp; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        if (static_cast<int>(threadIdx.x) >= step) sum += other;
      }
      if (e < args.num_local) args.start[e] = before + sum - own;
      before += __shfl_sync(0xffffffffu, sum, kWarp - 1);
    }
    if (threadIdx.x == 0) args.start[args.num_local] = before;
    return;
  }
  int source = 0, entry = mine;
  while (entry >= args.sources[source].rows * args.top_k) entry -= static_cast<int>(args.sources[source++].rows) * args.top_k;
  const int local = local_of(source, entry);
  if (local < 0) {
    if (threadIdx.x == 0) args.sources[source].slot_of[entry] = -1;
    return;
  }
  // Before it stand the entries of smaller experts, and those of its own that come earlier.
  int before = 0;
  for (int s = 0; s < args.num_sources; ++s)
    for (int at = threadIdx.x; at < args.sources[s].rows * args.top_k; at += kThreads) {
      const int other = local_of(s, at);
      if (other < 0) continue;
      const bool earlier = s < source || (s == source && at < entry);
      before += other < local || (other == local && earlier) ? 1 : 0;
    }
  const int64_t slot = static_cast<int64_t>(block_sum(static_cast<float>(before)));  // exact below 2^24
  if (threadIdx.x == 0) args.sources[source].slot_of[entry] = static_cast<int32_t>(slot);
  const float* from = args.rows.data[source] + entry / args.top_k * args.rows.stride[source];
  float* to = static_cast<float*>(args.out.data) + slot * args.out.stride;
  auto* rounded = static_cast<__nv_bfloat16*>(args.rounded) + slot * args.out.cols;
  for (int64_t at = threadIdx.x; at < args.out.cols; at += kThreads) {
    to[at] = from[at];
    if (args.rounded != nullptr) rounded[at] = __float2bfloat16_rn(from[at]);
  }
}

// The rows of all slots in use.
__global__ void fill_slots_kernel(Place args) {
  const RowMove move = args.moves[blockIdx.x];
  if (move.dst < 0) return;
  const float* from = args.rows.data[move.source] + move.src * args.rows.stride[move.source];
  float* to = static_cast<float*>(args.out.data) + move.dst * args.out.stride;
  auto* rounded = static_cast<__nv_bfloat16*>(args.rounded) + move.dst * args.out.cols;
  for (int64_t at = threadIdx.x; at < args.out.cols; at += blockDim.x) {
    to[at] = from[at];
    if (args.rounded != nullptr) rounded[at] = __float2bfloat16_rn(from[at]);
  }
}

}  // namespace

void route(const Route& args, cudaStream_t stream) {
  if (args.logits.rows == 0 || args.top_k == 0) return;
  const dim3 rows(static_cast<unsigned>(args.logits.rows));
  if (args.top_groups >= args.num_groups && args.top_k <= kWarp && args.logits.cols <= 16 * kWarp) {
    if (args.logits.cols <= 4 * kWarp) return launch_early(route_in_registers<4>, rows, kWarp, 0, stream, args);
    return launch_early(route_in_registers<16>, rows, kWarp, 0, stream, args);
  }
  const size_t shared = static_cast<size_t>(2 * args.logits.cols + args.num_groups) * sizeof(float) +
                        static_cast<size_t>(args.logits.cols + args.num_groups);
  launch_early(route_kernel, rows, kWarp, shared, stream, args);
}

void product_and_route(const RouterProduct& of, const Route& args, cudaStream_t stream) {
  if (of.x.rows == 0) return;
  const auto launch = [&](auto kernel) {
    launch_early(kernel, dim3(kRouteBlocks, static_cast<unsigned>(of.x.rows)), kRouteThreads,
                 static_cast<size_t>(of.x.cols) * sizeof(float), stream, Clusters{kRouteBlocks}, of, args);
  };
  if (args.logits.cols <= 4 * kWarp) return launch(product_and_route_kernel<4>);
  launch(product_and_route_kernel<16>);
}

void place_slots(const Place& args, cudaStream_t stream) {
  int64_t total = 0;
  for (int s = 0; s < args.num_sources; ++s) total += args.sources[s].rows * args.top_k;
  if (places_entry_by_entry(total, args.num_local)) {
    launch_early(place_entries_kernel, dim3(static_cast<unsigned>(total) + 1), kThreads, 0, stream, args,
                 static_cast<int>(total));
    return;
  }
  if (args.num_local == 0) {
    cudaMemsetAsync(args.start, 0, sizeof(int32_t), stream);
    for (int s = 0; s < args.num_sources; ++s)  // all bits: -1
      cudaMemsetAsync(args.sources[s].slot_of, 0xff,
                      static_cast<size_t>(args.sources[s].rows * args.top_k) * sizeof(int32_t), stream);
    return;
  }
  const auto blocks = static_cast<unsigned>(ceil_div(total, kThreads));
  const size_t shared = static_cast<size_t>(args.num_local) * sizeof(int32_t);
  int32_t* totals = args.counts + static_cast<int64_t>(blocks) * args.num_local;
  if (blocks > 0) count_kernel<<<blocks, kThreads, shared, stream>>>(args, total);
  sum_counts_kernel<<<static_cast<unsigned>(args.num_local), kThreads, 0, stream>>>(
      args.counts, totals, args.num_local, static_cast<int>(blocks));
  start_kernel<<<1, kWarp, 0, stream>>>(totals, args.start, args.num_local);
  if (blocks > 0) place_kernel<<<blocks, kThreads, shared, stream>>>(args, total);
  if (args.capacity == 0 || args.out.cols == 0 || spread_rows(args, stream)) return;
  fill_slots_kernel<<<static_cast<unsigned>(args.capacity), kThreads, 0, stream>>>(args);
}

void pull_weighted(const Pull& args, cudaStream_t stream) {
  if (args.out.rows == 0 || args.out.cols == 0) return;
  launch_early(pull_kernel,
               dim3(static_cast<unsigned>(args.out.rows), static_cast<unsigned>(ceil_div(args.out.cols, kThreads))), kThreads,
               0, stream, args);
}

}  // namespace lockstep::kernels::cuda
