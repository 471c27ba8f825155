// Experts of many rows each, on Hopper's matrix instructions: one block stays on every multiprocessor and takes tiles
// of 256 rows of an expert by 192 of its outputs, for gate and up 96 of each, as they come. One warp tells the copy
// engine what to bring, some steps of 64 values of depth ahead; two groups of four warps multiply two slabs of 64 rows
// each. So wide a tile because the L2 cache brings what a tile needs: the more products a number takes part in, the
// better.
#include <cfloat>

#include "lockstep/kernels/cuda/attention_pairs.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/wgmma.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kGroups = 2, kSlabs = 2 * kGroups, kSlabRows = kExpertMapRows, kTileRows = kSlabs * kSlabRows;
constexpr int kTileOuts = 2 * kMapRows, kDepth = kMapCols, kStages = 4;
constexpr int kGroupThreads = 4 * kWarp, kBlockThreads = (1 + kGroups) * kGroupThreads, kMultiplyingWarps = 4 * kGroups;
constexpr int kChunks = kTileOuts / 8, kNumbers = 4 * kChunks;  // of a slab: a thread has 4 numbers of 8 columns

// Some rows of an expert by a block of its outputs; no expert: there is nothing more.
struct Tile {
  int expert = -1;
  int first = 0, end = 0;  // rows
  int out = 0;             // which block of outputs
};

struct Stage {
  __nv_bfloat16 x[kTileRows * kDepth], w[kTileOuts * kDepth];
};
constexpr int kWeightBytes = kTileOuts * kDepth * 2, kSlabBytes = kSlabRows * kDepth * 2;

// Shared memory: the stages, at whole kilobytes, the barriers, and the tile that begins with a stage.
struct Shared {
  Stage* stages;
  uint64_t *full, *empty;
  Tile* tiles;
};
constexpr int kSharedBytes = 1024 + kStages * static_cast<int>(sizeof(Stage) + 2 * sizeof(uint64_t) + sizeof(Tile));

__device__ Shared shared_of(unsigned char* room) {
  auto* stages = room + (1024 - shared_address(room) % 1024) % 1024;
  auto* barriers = reinterpret_cast<uint64_t*>(stages + kStages * sizeof(Stage));
  return {reinterpret_cast<Stage*>(stages), barriers, barriers + kStages, reinterpret_cast<Tile*>(barriers + 2 * kStages)};
}

// Finds tiles by their number, which only grows. Tiles of an expert's rows stand together, for one block of outputs
// after the other: neighbours read the same weights.
struct Cursor {
  int expert = 0, before = 0;        // tiles of the experts before
  int begin = 0, end = 0, rows = 0;  // the expert's rows, and how many tiles they are
  __device__ void enter(const Experts& args, int next) {
    expert = next;
    begin = end;
    end = args.start[next + 1];
    rows = (end - begin + kTileRows - 1) / kTileRows;
  }
  __device__ Tile seek(const Experts& args, int at, int blocks_of_outs) {
    while (at >= before + rows * blocks_of_outs) {
      before += rows * blocks_of_outs;
      if (expert + 1 >= args.num_experts) return {};
      enter(args, expert + 1);
    }
    const int within = at - before;
    return {expert, begin + within % rows * kTileRows, end, within / rows};
  }
};

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
    __syncwarp();  // one lane speaks for all, which no product brings together here
    if (threadIdx.x % kWarp == 0) arrive(shared.empty + turn.stage);
  }
}

// Slabs `group` and, where there are two, `group` + kGroups of the tile, [64, 192] each.
template <int kCount>
__device__ __forceinline__ void multiply(const Shared& shared, Turn& turn, int steps, int group, float (&d)[2][kNumbers]) {
  const bool first_lane = threadIdx.x % kWarp == 0;
  int before = turn.stage;  // the stage of the step before
  for (int step = 0; step < steps; ++step) {
    wait_barrier(shared.full + turn.stage, turn.parity);
    const Stage& now = shared.stages[turn.stage];
    const uint64_t b = along_rows(now.w);
    fence_products();
#pragma unroll
    for (int slab = 0; slab < kCount; ++slab) {
      const uint64_t a = along_rows(now.x + (group + slab * kGroups) * kSlabRows * kDepth);
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k)
        product_192(d[slab], a + k * kStepAlongRows, b + k * kStepAlongRows, step > 0 || k > 0 ? 1 : 0);
    }
    commit_products();
    wait_products<1>();
    if (step > 0 && first_lane) arrive(shared.empty + before);
    before = turn.stage;
    turn.next();
  }
  wait_products<0>();
#pragma unroll
  for (int slab = 0; slab < kCount; ++slab) now_there(d[slab]);
  if (first_lane) arrive(shared.empty + before);
}

// What is done to products before they are stored. kPlain: no biases, silu, y rounded; apart, because an instruction
// that a tile runs once costs its way from memory, and there are as many as a thread has numbers.
enum class Ending : uint8_t { kPlain, kAny };

// silu and its kin as gated() has them, as exact as what is rounded to bf16 needs.
__device__ __forceinline__ float gated_fast(float gate, float up, const Gate& gating) {
  const float g = gate > gating.limit ? gating.limit : gate;
  const float u = up > gating.limit ? gating.limit : up < -gating.limit ? -gating.limit : up;
  return __fdividef(g, 1.0f + __expf(-(gating.alpha * g))) * (u + gating.up_shift);
}
__device__ __forceinline__ float silu_mul_fast(float gate, float up) {
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

template <Ending kEnding>
__device__ __forceinline__ void store_inner(const Experts& args, const Tile& tile, int first, const float (&d)[kNumbers]) {
  const int lane = threadIdx.x % kWarp, columns = args.inter - tile.out * kMapRows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int slot = first + lane / 4 + 8 * half;
    auto* to = static_cast<__nv_bfloat16*>(args.inner) + static_cast<int64_t>(slot) * args.inter + tile.out * kMapRows;
#pragma unroll
    for (int n = 0; n < kChunks / 2; n += 4) {
      uint32_t pieces[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (n + i) * 4 + half * 2, column = (n + i) * 8 + lane % 4 * 2;
        float value[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float gate = d[at + j], up = d[kNumbers / 2 + at + j];
          if constexpr (kEnding == Ending::kPlain) {
            value[j] = silu_mul_fast(gate, up);
          } else {
            if (args.gate_bias != nullptr && column < columns) {
              const int out = tile.out * kMapRows + column + j;
              gate += bias_of(args.gate_bias, tile.expert, args.bias_num, out);
              up += bias_of(args.up_bias, tile.expert, args.bias_num, out);
            }
            value[j] = gated_fast(gate, up, args.gating);
          }
        }
        pieces[i] = pack(value[0], value[1]);
      }
      turn_quad(pieces);
      const int column = (n + lane % 4) * 8;
      if (slot < tile.end && column < columns)
        *reinterpret_cast<uint4*>(to + column) = {pieces[0], pieces[1], pieces[2], pieces[3]};
    }
  }
}

template <Ending kEnding>
__device__ __forceinline__ void store_down(const Experts& args, const Tile& tile, int first, const float (&d)[kNumbers]) {
  const int lane = threadIdx.x % kWarp, columns = args.hidden - tile.out * kTileOuts;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int slot = first + lane / 4 + 8 * half;
    const int64_t begin = static_cast<int64_t>(slot) * args.y_stride + tile.out * kTileOuts;
#pragma unroll
    for (int n = 0; n < kChunks; n += 4) {
      if constexpr (kEnding == Ending::kPlain) {
        uint32_t pieces[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) pieces[i] = pack(d[(n + i) * 4 + half * 2], d[(n + i) * 4 + half * 2 + 1]);
        turn_quad(pieces);
        const int column = (n + lane % 4) * 8;
        if (slot < tile.end && column < columns)
          *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(args.rounded_y) + begin + column) = {pieces[0], pieces[1],
                                                                                                   pieces[2], pieces[3]};
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (n + i) * 4 + half * 2, column = (n + i) * 8 + lane % 4 * 2;
          if (slot >= tile.end || column >= columns) continue;
          float2 two = {d[at], d[at + 1]};
          if (args.down_bias != nullptr) {
            const int out = tile.out * kTileOuts + column;
            two.x += bias_of(args.down_bias, tile.expert, args.bias_num, out);
            two.y += bias_of(args.down_bias, tile.expert, args.bias_num, out + 1);
          }
          if (args.rounded_y == nullptr) {
            *reinterpret_cast<float2*>(args.y + begin + column) = two;
          } else {
            *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(args.rounded_y) + begin + column) = pack(two.x, two.y);
          }
        }
      }
    }
  }
}

struct Maps {
  const TensorMap *rows, *lower, *upper;  // of x or inner; of the experts' matrices
};

// One thread, until there are no more tiles: the first by the block's number, then as they are taken.
template <bool kInner>
__device__ void bring(const Experts& args, const Maps& maps, const Shared& shared, int* taken, int blocks_of_outs, int steps) {
  constexpr int kOutsATile = kInner ? kMapRows : kTileOuts;
  Cursor cursor;
  cursor.enter(args, 0);
  Turn turn;
  int at = static_cast<int>(blockIdx.x);
  for (;;) {
    const Tile tile = cursor.seek(args, at, blocks_of_outs);
    if (tile.expert < 0) break;
    at = static_cast<int>(gridDim.x) + atomicAdd(taken, 1);
    const int slabs = min(kSlabs, (tile.end - tile.first + kSlabRows - 1) / kSlabRows), out = tile.out * kOutsATile;
    const TensorMap *lower = maps.lower + tile.expert, *upper = maps.upper + tile.expert;
    for (int step = 0; step < steps; ++step) {
      wait_barrier(shared.empty + turn.stage, turn.parity ^ 1);  // the first round finds all stages empty
      uint64_t* full = shared.full + turn.stage;
      Stage& to = shared.stages[turn.stage];
      if (step == 0) shared.tiles[turn.stage] = tile;
      arrive_and_expect(full, kWeightBytes + slabs * kSlabBytes);
      for (int slab = 0; slab < slabs; ++slab)
        copy_box(to.x + slab * kSlabRows * kDepth, maps.rows, step * kDepth, tile.first + slab * kSlabRows, full);
      copy_box(to.w, lower, step * kDepth, out, full);
      copy_box(to.w + kMapRows * kDepth, upper, step * kDepth, kInner ? out : out + kMapRows, full);
      turn.next();
    }
  }
  wait_barrier(shared.empty + turn.stage, turn.parity ^ 1);
  shared.tiles[turn.stage] = {};
  arrive(shared.full + turn.stage);
}

// kInner: inner = gated(x · gateᵀ, x · upᵀ), else y = inner · downᵀ. `rows`: the map of x, or of inner. `taken`: how
// many tiles blocks have taken beside their first.
template <bool kInner, Ending kEnding>
__global__ void __launch_bounds__(kBlockThreads, 1)
    experts_kernel(Experts args, const __grid_constant__ TensorMap rows, const TensorMap* lower, const TensorMap* upper, int* taken) {
  extern __shared__ unsigned char room[];
  const Shared shared = shared_of(room);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(shared.full + stage, 1);
      init_barrier(shared.empty + stage, kMultiplyingWarps);
    }
    fence_barriers();
  }
  __syncthreads();
  const int outs = kInner ? args.inter : args.hidden, depth = kInner ? args.hidden : args.inter;
  const int outs_a_tile = kInner ? kMapRows : kTileOuts;
  const int blocks_of_outs = (outs + outs_a_tile - 1) / outs_a_tile, steps = (depth + kDepth - 1) / kDepth;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 1;
  if (group < 0) {
    give_registers<40>();
    if (threadIdx.x == 0) bring<kInner>(args, {&rows, lower, upper}, shared, taken, blocks_of_outs, steps);
  } else {
    take_registers<232>();
    const int row = group * kSlabRows + static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16;
    const auto store = [&](const Tile& tile, int first, const float (&d)[kNumbers]) {
      if constexpr (kInner) {
        store_inner<kEnding>(args, tile, first, d);
      } else {
        store_down<kEnding>(args, tile, first, d);
      }
    };
    Turn turn;
    bool behind = group > 0;  // a step behind the first group, so that one multiplies while the other stores
    for (;;) {
      wait_barrier(shared.full + turn.stage, turn.parity);
      const Tile tile = shared.tiles[turn.stage];
      __syncwarp();  // all lanes have read it before one of them gives the stage back
      if (tile.expert < 0) break;
      if (behind) wait_barrier(shared.full + 1, 0);  // with the next step, or the word that there is none
      behind = false;
      const int slabs = (tile.end - tile.first + kSlabRows - 1) / kSlabRows;
      float d[2][kNumbers];
      if (group + kGroups < slabs) {
        multiply<2>(shared, turn, steps, group, d);
        store(tile, tile.first + row, d[0]);
        store(tile, tile.first + row + kGroups * kSlabRows, d[1]);
      } else if (group < slabs) {
        multiply<1>(shared, turn, steps, group, d);
        store(tile, tile.first + row, d[0]);
      } else {
        let_pass(shared, turn, steps);
      }
    }
  }
}

template <class Kernel>
void run(Kernel kernel, const Experts& args, const TensorMap& rows, const TensorMap* lower, const TensorMap* upper,
         int* taken, cudaStream_t stream) {
  int device = 0, blocks = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  kernel<<<static_cast<unsigned>(blocks), kBlockThreads, kSharedBytes, stream>>>(args, rows, lower, upper, taken);
}

}  // namespace

void experts_many_rows(const Experts& args, const ExpertMaps& maps, cudaStream_t stream) {
  if (args.slots == 0 || args.num_experts == 0) return;
  cudaMemsetAsync(args.taken, 0, 2 * sizeof(int), stream);
  const Gate& gating = args.gating;
  const bool silu = args.gate_bias == nullptr && gating.limit > FLT_MAX && gating.alpha == 1 && gating.up_shift == 0;
  const bool plain_down = args.down_bias == nullptr && args.rounded_y != nullptr;
  using enum Ending;
  run(silu ? experts_kernel<true, kPlain> : experts_kernel<true, kAny>, args, maps.x, maps.gate, maps.up, args.taken, stream);
  run(plain_down ? experts_kernel<false, kPlain> : experts_kernel<false, kAny>, args, maps.inner, maps.down, maps.down,
      args.taken + 1, stream);
}

}  // namespace lockstep::kernels::cuda
