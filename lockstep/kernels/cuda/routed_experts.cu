// Experts of few rows without slots: where all experts are this rank's and a warp can hold the routing of all rows, the
// blocks read it themselves. An entry is one expert of one row, number row * top_k + k. The first kernel makes gate and
// up of every entry, the second multiplies with down, weighs the entries of a row in the order of k and adds them up.
#include "lockstep/kernels/cuda/streaming.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kMostEntries = kMostRoutedEntries, kEntriesOfPass = 8;
static_assert(kMostEntries == kWarp);

// Up to kEntriesOfPass entries of one expert, whose weights are read once for them.
struct Pass {
  const __nv_bfloat16 *first = nullptr, *second = nullptr;  // gate and up, or down
  int expert = 0, size = 0;
  int entry[kEntriesOfPass] = {};
};
struct Passes {
  int count = 0;
  Pass passes[kMostEntries];
};
static_assert(sizeof(Passes) <= kRoutedPassBytes);

// By the first warp, the same in every block; the caller synchronises. Experts in the order of their first entries.
__device__ void list_passes(const RoutedExperts& args, Passes& passes, const void* const* first, const void* const* second) {
  const int lane = static_cast<int>(threadIdx.x), count = args.rows * args.top_k;
  const int local = lane < count ? __ldcg(args.expert_idx + lane) - args.first_expert : -1;
  const bool counts = local >= 0 && local < args.experts.num_experts;
  const unsigned same = __match_any_sync(0xffffffffu, counts ? local : -1 - lane);
  const unsigned before = (1u << lane) - 1;
  const bool leads = counts && __popc(same & before) % kEntriesOfPass == 0;
  const unsigned leaders = __ballot_sync(0xffffffffu, leads);
  if (lane == 0) passes.count = __popc(leaders);
  if (!leads) return;
  Pass& pass = passes.passes[__popc(leaders & before)];
  pass.expert = local;
  pass.first = static_cast<const __nv_bfloat16*>(first[local]);
  pass.second = static_cast<const __nv_bfloat16*>(second[local]);
  int size = 0;
#pragma unroll 1
  for (unsigned left = same & ~before; left != 0 && size < kEntriesOfPass; left &= left - 1)
    pass.entry[size++] = __ffs(static_cast<int>(left)) - 1;
  pass.size = size;
}

__device__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// A group of a tile is 8 rows of gate and the same 8 of up, so that a thread holds both of a value.
struct RoutedInnerJob {
  const RoutedExperts& args;
  const Passes* passes = nullptr;
  int groups = 1, tiles_of_pass = 1;

  __device__ int depth() const { return args.experts.hidden; }
  // One warp lists what is routed here while the others bring x, rounded. The kernel that multiplies with down comes once
  // the routing is there: it need not wait for it.
  __device__ void before(__nv_bfloat16* x) {
    const int pitch = few_rows_pitch(args.experts.hidden), hidden = args.experts.hidden;
    auto& list = *reinterpret_cast<Passes*>(x + args.rows * pitch);
    passes = &list;
    for (int at = static_cast<int>(threadIdx.x) * 16; at < args.experts.num_experts; at += kWarps * kWarp * 16) {
      ask_for(args.experts.gate + at);  // soon, one of these leads to the first weights
      ask_for(args.experts.up + at);
    }
    wait_for_kernels_before();
    let_next_kernel_come();
    if (threadIdx.x < kWarp) {
      list_passes(args, list, args.experts.gate, args.experts.up);
    } else {
#pragma unroll 1
      for (int row = 0; row < args.rows; ++row) {
        const float* from = static_cast<const float*>(args.experts.x) + row * args.experts.x_stride;
#pragma unroll 2
        for (int at = (static_cast<int>(threadIdx.x) - kWarp) * 4; at < pitch; at += (kWarps - 1) * kWarp * 4) {
          const float4 four = at < hidden ? __ldcg(reinterpret_cast<const float4*>(from + at)) : float4{};
          *reinterpret_cast<uint2*>(x + row * pitch + at) = {pack(four.x, four.y), pack(four.z, four.w)};
        }
      }
    }
    __syncthreads();
  }
  __device__ void wait(__nv_bfloat16*) {}
  __device__ int64_t num_tiles(int groups_of_tile) {
    groups = groups_of_tile;
    tiles_of_pass = (args.experts.inter + 8 * groups - 1) / (8 * groups);
    return static_cast<int64_t>(passes->count) * tiles_of_pass;
  }
  __device__ const Pass& pass_of(int tile) const { return passes->passes[tile / tiles_of_pass]; }
  __device__ int num_rows(int tile) const { return pass_of(tile).size; }
  __device__ int place_of_row(int tile, int nth) const {
    return pass_of(tile).entry[nth] / args.top_k * few_rows_pitch(args.experts.hidden);
  }
  __device__ int out_of(int tile, int group) const { return (tile % tiles_of_pass * groups + group) * 8; }
  __device__ Tile tile(int tile, int group) const {
    const Pass& pass = pass_of(tile);
    const int out = min(out_of(tile, group), args.experts.inter - 1), there = min(8, args.experts.inter - out);
    const int64_t stride = args.experts.gate_stride;  // of both: the caller sees to it
    return {pass.first + out * stride, pass.second + out * stride, stride, there, there};
  }
  __device__ void store_few(int tile, int group, int row, int nth, float gate, float up) const {
    const int out = out_of(tile, group) + row;
    if (out >= args.experts.inter) return;
    const Pass& pass = pass_of(tile);
    const Experts& of = args.experts;
    gate += bias_of(of.gate_bias, pass.expert, of.bias_num, out);
    up += bias_of(of.up_bias, pass.expert, of.bias_num, out);
    static_cast<__nv_bfloat16*>(of.inner)[static_cast<int64_t>(pass.entry[nth]) * of.inter + out] =
        __float2bfloat16_rn(gated(gate, up, of.gating));
  }
};

__global__ void __launch_bounds__(kWarps* kWarp, 2) routed_inner_kernel(RoutedExperts args, int slices) {
  RoutedInnerJob job{args};
  run_few_rows(job, slices);
}

// What a warp multiplies, one after the other: of each of the block's tiles of 16 outputs every kWarps-th pass.
struct DownJob {
  const RoutedExperts& args;
  const Passes& passes;
  const int first_tile, passes_of_warp;

  __device__ int depth() const { return args.experts.inter; }
  __device__ int pass_of(int at, int warp) const { return at % passes_of_warp * kWarps + warp; }
  __device__ int out_of(int at) const { return (first_tile + at / passes_of_warp) * kTileRows; }
  __device__ Tile tile(int at, int warp) const {
    const int out = out_of(at), upper = args.experts.hidden - out - 8;
    const int64_t stride = args.experts.down_stride;
    const __nv_bfloat16* w = passes.passes[pass_of(at, warp)].first + out * stride;
    return {w, upper > 0 ? w + 8 * stride : w, stride, min(args.experts.hidden - out, 8), min(upper, 8)};
  }
};

// Rows of `inner` in shared memory lie so far apart that two neighbours' pieces lie in different banks.
__device__ int inner_pitch(int inter) { return inter + kRoutedPad; }

__device__ void fetch_inner(const RoutedExperts& args, __nv_bfloat16* to) {
  const int pieces = args.experts.inter / 8, count = args.rows * args.top_k * pieces, pitch = inner_pitch(args.experts.inter);
  const auto* from = static_cast<const uint4*>(args.experts.inner);
#pragma unroll 4
  for (int at = threadIdx.x; at < count; at += kWarps * kWarp)
    *reinterpret_cast<uint4*>(to + at / pieces * pitch + at % pieces * 8) = __ldcg(from + at);
  __syncthreads();
}

// One pass of a tile: 16 outputs of up to 8 entries, into `y` [entries][kTileRows].
__device__ void multiply_down(const RoutedExperts& args, const Pass& pass, int out, Feed<DownJob>& feed,
                              const uint4* ring, int& stage, const __nv_bfloat16* inner, float* y) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, row = lane / 4, quad = lane % 4 * 8;
  const int depth = args.experts.inter, chunks = (depth + kChunk - 1) / kChunk;
  const bool has_entry = row < pass.size;
  const __nv_bfloat16* x = inner + (has_entry ? pass.entry[row] : 0) * inner_pitch(depth) + quad;
  float sum[4] = {};
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    feed.next();
    wait_copies<kStages - 1>();
    __syncwarp();
    const uint4* now = ring + stage * (kTileRows * kChunkPieces);
    stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = chunk * kChunk + half * 32;
      const uint4 lo = now[row * kChunkPieces + place_of(row, half * 4 + lane % 4)];
      const uint4 hi = now[(row + 8) * kChunkPieces + place_of(row + 8, half * 4 + lane % 4)];
      const uint4 b = has_entry && at + quad < depth ? load16(x + at) : uint4{};
      mma(sum, {lo.x, hi.x, lo.y, hi.y}, b.x, b.y);
      mma(sum, {lo.z, hi.z, lo.w, hi.w}, b.z, b.w);
    }
    __syncwarp();
  }
  const Experts& of = args.experts;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int nth = lane % 4 * 2 + j;
    if (nth >= pass.size) continue;
    float* to = y + pass.entry[nth] * kTileRows;
    for (const int half : {0, 1}) {
      const int at = row + 8 * half;
      if (out + at < of.hidden)
        to[at] = sum[2 * half + j] + bias_of(of.down_bias, pass.expert, of.bias_num, out + at);
    }
  }
}

// What pull_weighted() does with the entries of each row, and what is added.
__device__ void pull_tile(const RoutedExperts& args, int out, const float* y) {
  for (int at = threadIdx.x; at < args.rows * kTileRows; at += kWarps * kWarp) {
    const int row = at / kTileRows, column = out + at % kTileRows;
    if (column >= args.experts.hidden) continue;
    float sum = 0;
    for (int k = 0; k < args.top_k; ++k) {
      const int entry = row * args.top_k + k, local = __ldcg(args.expert_idx + entry) - args.first_expert;
      if (local >= 0 && local < args.experts.num_experts)
        sum += __ldcg(args.weight + entry) * y[entry * kTileRows + at % kTileRows];
    }
    if (args.plus.data != nullptr) sum += static_cast<const float*>(args.plus.data)[row * args.plus.stride + column];
    static_cast<float*>(args.out.data)[row * args.out.stride + column] = sum;
    if (args.onto.data != nullptr) static_cast<float*>(args.onto.data)[row * args.onto.stride + column] += sum;
  }
}

__global__ void __launch_bounds__(kWarps* kWarp, 2) routed_down_kernel(RoutedExperts args) {
  let_next_kernel_come();
  extern __shared__ uint4 shared[];
  auto* y = reinterpret_cast<float*>(shared + kWarps * kRing);  // [2][entries][kTileRows]
  auto& list = *reinterpret_cast<Passes*>(y + 2 * kMostEntries * kTileRows);
  auto* inner = reinterpret_cast<__nv_bfloat16*>(reinterpret_cast<char*>(&list) + kRoutedPassBytes);
  if (threadIdx.x < kWarp) list_passes(args, list, args.experts.down, args.experts.down);
  __syncthreads();
  const Passes& passes = list;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int tiles = (args.experts.hidden + kTileRows - 1) / kTileRows;
  const int begin = static_cast<int>(static_cast<int64_t>(tiles) * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(static_cast<int64_t>(tiles) * (blockIdx.x + 1) / gridDim.x);
  const int mine = (passes.count - warp + kWarps - 1) / kWarps;
  DownJob job{args, passes, begin, mine};
  const uint4* ring = shared + warp * kRing;
  const Slice whole{0, (args.experts.inter + kChunk - 1) / kChunk};
  Feed<DownJob> feed(job, shared + warp * kRing, whole, 0, (end - begin) * mine, warp);
#pragma unroll 1
  for (int n = 0; n < kStages - 1; ++n) feed.next();
  wait_for_kernels_before();
  fetch_inner(args, inner);
  int stage = 0;
  for (int tile = begin; tile < end; ++tile) {
    float* of_tile = y + tile % 2 * kMostEntries * kTileRows;
    for (int n = 0; n < mine; ++n)
      multiply_down(args, passes.passes[n * kWarps + warp], tile * kTileRows, feed, ring, stage, inner, of_tile);
    __syncthreads();
    pull_tile(args, tile * kTileRows, of_tile);
  }
  wait_copies<0>();
}

}  // namespace

void routed_experts(const RoutedExperts& args, cudaStream_t stream) {
  if (args.rows == 0 || args.experts.hidden == 0) return;
  const size_t more = static_cast<size_t>(few_rows_bytes(args.rows, args.experts.hidden)) + sizeof(Passes);
  launch_streaming(routed_inner_kernel, 1, more, stream, args, stream_slices(args.experts.hidden, kFewSteps));
  const auto shared = static_cast<size_t>(routed_down_shared_bytes(args.rows * args.top_k, args.experts.inter));
  cudaFuncSetAttribute(routed_down_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostRoutedShared);
  launch_early(routed_down_kernel, dim3(static_cast<unsigned>(num_multiprocessors())), kWarps * kWarp, shared, stream,
               args);
}

}  // namespace lockstep::kernels::cuda
