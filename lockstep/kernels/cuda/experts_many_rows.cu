// Experts of many rows each, on Hopper's matrix instructions: one block stays on every multiprocessor and takes tiles
// of 128 rows of an expert by 256 of its outputs, for gate and up 128 of each. One warp tells the copy engine what to
// bring, some steps of 64 values of depth ahead; two groups of four warps multiply 64 rows each.
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/wgmma.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kTileRows = kMapRows, kTileOuts = 2 * kMapRows, kDepth = kMapCols, kStages = 4;
constexpr int kGroupThreads = 4 * kWarp, kBlockThreads = 3 * kGroupThreads, kMultiplyingWarps = 8;

struct Stage {
  __nv_bfloat16 x[kTileRows * kDepth], w[kTileOuts * kDepth];
};
constexpr int kStageBytes = static_cast<int>(sizeof(Stage));

// Shared memory: the stages, at whole kilobytes, the barriers, and before which tile of rows each expert begins.
struct Shared {
  Stage* stages;
  uint64_t *full, *empty;
  int32_t* first_tile;  // [num_experts + 1]
};
constexpr size_t shared_bytes(int num_experts) {
  return 1024 + kStages * sizeof(Stage) + 2 * kStages * sizeof(uint64_t) + sizeof(int32_t) * (static_cast<size_t>(num_experts) + 1);
}

__device__ Shared shared_of(unsigned char* room) {
  auto* stages = room + (1024 - shared_address(room) % 1024) % 1024;
  auto* barriers = reinterpret_cast<uint64_t*>(stages + kStages * sizeof(Stage));
  return {reinterpret_cast<Stage*>(stages), barriers, barriers + kStages, reinterpret_cast<int32_t*>(barriers + 2 * kStages)};
}

__device__ void count_tiles(const Experts& args, int32_t* first_tile) {
  int before = 0;
  for (int base = 0; base < args.num_experts; base += kWarp) {
    const int expert = base + static_cast<int>(threadIdx.x);
    const int own = expert < args.num_experts
                        ? (args.start[expert + 1] - args.start[expert] + kTileRows - 1) / kTileRows
                        : 0;
    int sum = own;
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (static_cast<int>(threadIdx.x) >= step) sum += other;
    }
    if (expert < args.num_experts) first_tile[expert] = before + sum - own;
    before += __shfl_sync(0xffffffffu, sum, kWarp - 1);
  }
  if (threadIdx.x == 0) first_tile[args.num_experts] = before;
}

struct Tile {
  int expert = 0, first = 0, end = 0;  // rows
  int out = 0;                         // which block of outputs
};

// Tiles of an expert's rows stand together, for one block of outputs after the other: neighbours read the same weights.
__device__ Tile tile_of(const Experts& args, const int32_t* first_tile, int at, int blocks_of_outs) {
  int low = 0, high = args.num_experts - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first_tile[middle] * blocks_of_outs <= at) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int rows = first_tile[low + 1] - first_tile[low], within = at - first_tile[low] * blocks_of_outs;
  return {low, args.start[low] + within % rows * kTileRows, args.start[low + 1], within / rows};
}

struct Turn {
  int stage = 0, parity = 0;
  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Where a group of warps has no rows of its own it only takes part in the waiting.
__device__ void let_pass(const Shared& shared, Turn& turn, int steps) {
  for (int step = 0; step < steps; ++step, turn.next()) {
    wait_barrier(shared.full + turn.stage, turn.parity);
    if (threadIdx.x % kWarp == 0) arrive(shared.empty + turn.stage);
  }
}

// d [64, 256] of a group of warps for the tile.
__device__ __forceinline__ void multiply(const Shared& shared, Turn& turn, int steps, int group, float (&d)[128]) {
  const bool first_lane = threadIdx.x % kWarp == 0;
  int before = turn.stage;  // the stage of the step before
  for (int step = 0; step < steps; ++step) {
    wait_barrier(shared.full + turn.stage, turn.parity);
    const Stage& now = shared.stages[turn.stage];
    const uint64_t a = along_rows(now.x + group * 64 * kDepth), b = along_rows(now.w);
    fence_products();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      product_256(d, a + k * kStepAlongRows, b + k * kStepAlongRows, step > 0 || k > 0 ? 1 : 0);
    commit_products();
    wait_products<1>();
    if (step > 0 && first_lane) arrive(shared.empty + before);
    before = turn.stage;
    turn.next();
  }
  wait_products<0>();
  now_there(d);
  if (first_lane) arrive(shared.empty + before);
}

__device__ void store_inner(const Experts& args, const Tile& tile, int first, const float (&d)[128]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int slot = first + lane / 4 + 8 * half;
    if (slot >= tile.end) continue;
    auto* to = static_cast<__nv_bfloat16*>(args.inner) + static_cast<int64_t>(slot) * args.inter;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const int out = tile.out * kTileRows + n * 8 + lane % 4 * 2;
      if (out >= args.inter) continue;
      float value[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float gate = d[n * 4 + half * 2 + j], up = d[64 + n * 4 + half * 2 + j];
        if (args.gate_bias != nullptr) {
          gate += bias_of(args.gate_bias, tile.expert, args.bias_num, out + j);
          up += bias_of(args.up_bias, tile.expert, args.bias_num, out + j);
        }
        value[j] = gated(gate, up, args.gating);
      }
      *reinterpret_cast<__nv_bfloat162*>(to + out) = __floats2bfloat162_rn(value[0], value[1]);
    }
  }
}

__device__ void store_down(const Experts& args, const Tile& tile, int first, const float (&d)[128]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int slot = first + lane / 4 + 8 * half;
    if (slot >= tile.end) continue;
    float* to = args.y + static_cast<int64_t>(slot) * args.y_stride;
#pragma unroll
    for (int n = 0; n < 32; ++n) {
      const int out = tile.out * kTileOuts + n * 8 + lane % 4 * 2;
      if (out >= args.hidden) continue;
      float value[2] = {d[n * 4 + half * 2], d[n * 4 + half * 2 + 1]};
      if (args.down_bias != nullptr)
        for (int j = 0; j < 2; ++j) value[j] += bias_of(args.down_bias, tile.expert, args.bias_num, out + j);
      *reinterpret_cast<float2*>(to + out) = {value[0], value[1]};
    }
  }
}

// kInner: inner = gated(x · gateᵀ, x · upᵀ), else y = inner · downᵀ. `rows`: the map of x, or of inner.
template <bool kInner>
__global__ void __launch_bounds__(kBlockThreads, 1)
    experts_kernel(Experts args, const __grid_constant__ TensorMap rows, const TensorMap* lower, const TensorMap* upper) {
  extern __shared__ unsigned char room[];
  const Shared shared = shared_of(room);
  if (threadIdx.x < kWarp) count_tiles(args, shared.first_tile);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(shared.full + stage, 1);
      init_barrier(shared.empty + stage, kMultiplyingWarps);
    }
    fence_barriers();
  }
  __syncthreads();
  const int outs = kInner ? args.inter : args.hidden, depth = kInner ? args.hidden : args.inter;
  const int outs_a_tile = kInner ? kTileRows : kTileOuts;
  const int blocks_of_outs = (outs + outs_a_tile - 1) / outs_a_tile, steps = (depth + kDepth - 1) / kDepth;
  const int num_tiles = shared.first_tile[args.num_experts] * blocks_of_outs;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  Turn turn;
  if (group == 0) {
    give_registers<40>();
    if (threadIdx.x != 0) return;
    for (int at = static_cast<int>(blockIdx.x); at < num_tiles; at += static_cast<int>(gridDim.x)) {
      const Tile tile = tile_of(args, shared.first_tile, at, blocks_of_outs);
      for (int step = 0; step < steps; ++step) {
        wait_barrier(shared.empty + turn.stage, turn.parity ^ 1);  // the first round finds all stages empty
        uint64_t* full = shared.full + turn.stage;
        Stage& to = shared.stages[turn.stage];
        arrive_and_expect(full, kStageBytes);
        copy_box(to.x, &rows, step * kDepth, tile.first, full);
        const int out = tile.out * outs_a_tile;
        copy_box(to.w, lower + tile.expert, step * kDepth, out, full);
        copy_box(to.w + kMapRows * kDepth, upper + tile.expert, step * kDepth, kInner ? out : out + kMapRows, full);
        turn.next();
      }
    }
  } else {
    take_registers<232>();
    const int first_of_warp = (group - 1) * 64 + static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16;
    for (int at = static_cast<int>(blockIdx.x); at < num_tiles; at += static_cast<int>(gridDim.x)) {
      const Tile tile = tile_of(args, shared.first_tile, at, blocks_of_outs);
      if (tile.first + (group - 1) * 64 >= tile.end) {
        let_pass(shared, turn, steps);
        continue;
      }
      float d[128];
      multiply(shared, turn, steps, group - 1, d);
      if constexpr (kInner) {
        store_inner(args, tile, tile.first + first_of_warp, d);
      } else {
        store_down(args, tile, tile.first + first_of_warp, d);
      }
    }
  }
}

template <class Kernel>
void run(Kernel kernel, const Experts& args, const TensorMap& rows, const TensorMap* lower, const TensorMap* upper,
         cudaStream_t stream) {
  int device = 0, blocks = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes(kMostExperts)));
  kernel<<<static_cast<unsigned>(blocks), kBlockThreads, shared_bytes(args.num_experts), stream>>>(args, rows, lower, upper);
}

}  // namespace

void experts_many_rows(const Experts& args, const ExpertMaps& maps, cudaStream_t stream) {
  if (args.slots == 0 || args.num_experts == 0) return;
  run(experts_kernel<true>, args, maps.x, maps.gate, maps.up, stream);
  run(experts_kernel<false>, args, maps.inner, maps.down, maps.down, stream);
}

}  // namespace lockstep::kernels::cuda
