// Routing, and the way of rows to the experts of a rank and back.
#include <cfloat>

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

// Block e counts the rows of local expert e.
__global__ void count_kernel(Place args) {
  const int expert = args.first_expert + static_cast<int>(blockIdx.x);
  float count = 0;  // exact below 2^24
  for (int s = 0; s < args.num_sources; ++s) {
    const int64_t entries = args.sources[s].rows * args.top_k;
    for (int64_t at = threadIdx.x; at < entries; at += blockDim.x)
      count += args.sources[s].expert_idx[at] == expert ? 1.0f : 0.0f;
  }
  count = block_sum(count);
  if (threadIdx.x == 0) args.counts[blockIdx.x] = static_cast<int32_t>(count);
}

// Block e gives the rows of local expert e their slots, in order: source after source, row after row.
__global__ void place_kernel(Place args) {
  __shared__ int of_warp[kThreads / kWarp];
  const int local = static_cast<int>(blockIdx.x);
  const int expert = args.first_expert + local;
  int before = 0, total = 0;
  for (int e = 0; e < args.num_local; ++e) {
    if (e < local) before += args.counts[e];
    total += args.counts[e];
  }
  if (threadIdx.x == 0) args.start[local] = before;
  if (local == 0) {
    if (threadIdx.x == 0) args.start[args.num_local] = total;
    for (int64_t slot = total + threadIdx.x; slot < args.capacity; slot += blockDim.x)
      args.moves[slot] = {0, 0, -1};
  }
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int next = before;
  for (int s = 0; s < args.num_sources; ++s) {
    const int64_t entries = args.sources[s].rows * args.top_k;
    for (int64_t base = 0; base < entries; base += blockDim.x) {
      const int64_t at = base + threadIdx.x;
      const bool mine = at < entries && args.sources[s].expert_idx[at] == expert;
      const unsigned ballot = __ballot_sync(0xffffffffu, mine);
      __syncthreads();
      if (lane == 0) of_warp[warp] = __popc(ballot);
      __syncthreads();
      int ahead = 0, all = 0;
      for (int w = 0; w < kThreads / kWarp; ++w) {
        if (w < warp) ahead += of_warp[w];
        all += of_warp[w];
      }
      if (mine) {
        const int slot = next + ahead + __popc(ballot & ((1u << lane) - 1));
        args.sources[s].slot_of[at] = slot;
        args.moves[slot] = {s, static_cast<int32_t>(at / args.top_k), slot};
      }
      next += all;
    }
  }
}

// Entries whose expert is not here. (Those whose expert is get their slot from place_kernel.)
__global__ void mark_absent_kernel(PlaceSource source, int64_t entries, int first, int count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= entries) return;
  const int expert = source.expert_idx[at];
  if (expert < first || expert >= first + count) source.slot_of[at] = -1;
}

constexpr int kMostPulled = 64;  // slots of a row that are looked up before the first is read

// A thread a column, a block some columns of one row.
__global__ void pull_kernel(Pull args) {
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
      from[at] = slot < 0 ? nullptr : args.y[source] + slot * args.y_stride[source];
      weights[at] = args.weight[row * args.top_k + k];
    }
    __syncthreads();
    if (column >= args.out.cols) continue;
#pragma unroll 8
    for (int at = 0; at < count; ++at)
      if (from[at] != nullptr) sum += weights[at] * from[at][column];
  }
  if (column < args.out.cols) static_cast<float*>(args.out.data)[row * args.out.stride + column] = sum;
}

// All of it in one block, for few entries: a thread counts and places the rows of a local expert.
__global__ void place_few_kernel(Place args) {
  __shared__ int32_t experts[kFewEntries], counts[kFewExperts];
  int total = 0;
  for (int s = 0; s < args.num_sources; ++s) {
    const int entries = static_cast<int>(args.sources[s].rows) * args.top_k;
    for (int at = threadIdx.x; at < entries; at += blockDim.x) {
      const int local = args.sources[s].expert_idx[at] - args.first_expert;
      const bool is_local = local >= 0 && local < args.num_local;
      experts[total + at] = is_local ? local : -1;
      if (!is_local) args.sources[s].slot_of[at] = -1;
    }
    total += entries;
  }
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  int count = 0;
  if (mine < args.num_local)
    for (int at = 0; at < total; ++at) count += experts[at] == mine ? 1 : 0;
  if (mine < kFewExperts) counts[mine] = count;
  __syncthreads();
  int next = 0;
  for (int e = 0; e < min(mine, args.num_local); ++e) next += counts[e];
  if (mine <= args.num_local) args.start[mine] = next;
  if (mine < args.num_local && count > 0) {
    int at = 0;
    for (int s = 0; s < args.num_sources; ++s)
      for (int entry = 0; entry < args.sources[s].rows * args.top_k; ++entry, ++at)
        if (experts[at] == mine) {
          args.sources[s].slot_of[entry] = next;
          args.moves[next] = {s, entry / args.top_k, next};
          ++next;
        }
  }
  int used = 0;
  for (int e = 0; e < args.num_local; ++e) used += counts[e];
  for (int64_t slot = used + mine; slot < args.capacity; slot += blockDim.x) args.moves[slot] = {0, 0, -1};
}

}  // namespace

void route(const Route& args, cudaStream_t stream) {
  if (args.logits.rows == 0 || args.top_k == 0) return;
  const size_t shared = static_cast<size_t>(2 * args.logits.cols + args.num_groups) * sizeof(float) +
                        static_cast<size_t>(args.logits.cols + args.num_groups);
  route_kernel<<<static_cast<unsigned>(args.logits.rows), kWarp, shared, stream>>>(args);
}

void place_slots(const Place& args, cudaStream_t stream) {
  int64_t total = 0;
  for (int s = 0; s < args.num_sources; ++s) total += args.sources[s].rows * args.top_k;
  if (places_in_one_block(total, args.num_local)) {
    place_few_kernel<<<1, kFewExperts + kWarp, 0, stream>>>(args);
    return;
  }
  for (int s = 0; s < args.num_sources; ++s) {
    const int64_t entries = args.sources[s].rows * args.top_k;
    if (entries > 0)
      mark_absent_kernel<<<static_cast<unsigned>(ceil_div(entries, kThreads)), kThreads, 0, stream>>>(
          args.sources[s], entries, args.first_expert, args.num_local);
  }
  if (args.num_local == 0) {
    cudaMemsetAsync(args.start, 0, sizeof(int32_t), stream);
    return;
  }
  count_kernel<<<static_cast<unsigned>(args.num_local), kThreads, 0, stream>>>(args);
  place_kernel<<<static_cast<unsigned>(args.num_local), kThreads, 0, stream>>>(args);
}

void pull_weighted(const Pull& args, cudaStream_t stream) {
  if (args.out.rows == 0 || args.out.cols == 0) return;
  pull_kernel<<<dim3(static_cast<unsigned>(args.out.rows), static_cast<unsigned>(ceil_div(args.out.cols, kThreads))),
                kThreads, 0, stream>>>(args);
}

}  // namespace lockstep::kernels::cuda
