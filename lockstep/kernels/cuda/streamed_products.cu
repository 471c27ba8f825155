// Products of few rows with many weights: bound by how fast weights come from memory. One block stays on every
// multiprocessor and takes a run of tiles, 16 rows of weights each, of which every warp multiplies a slice of the
// depth. A warp brings its own pieces of weights into shared memory, several ahead, without ever waiting for another
// warp; what it multiplies them with, its slice of up to 32 rows of x, stays in registers as long as the tiles belong
// to the same rows. What 32 values of depth mean inside the matrix instruction is the same permutation for both
// operands. The slices of a tile are added in ascending order.
#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/tensor_cores.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kWarps = kStreamWarps, kStages = 6, kTileRows = kStreamTileRows, kChunk = kStreamChunk;
constexpr int kChunkPieces = kChunk / 8;  // of 16 bytes
static_assert(kChunkPieces == 8 && kTileRows == 16 && kWarps == 8);

// 16 rows of weights: eight of one matrix from `lower` on and eight from `upper` on. Rows behind the last that is
// there are the last one again; what they give is not stored.
struct Tile {
  const __nv_bfloat16 *lower = nullptr, *upper = nullptr;
  int64_t stride = 0;
  int num_lower = 0, num_upper = 0;
};

// The rows of x that tiles are multiplied with, and whose they are.
struct RowsOfX {
  const __nv_bfloat16 *x = nullptr, *rest = nullptr;
  int64_t stride = 0;
  int first = 0, last = 0, expert = 0;
};

__device__ uint4 load16(const __nv_bfloat16* from) { return *reinterpret_cast<const uint4*>(from); }

// A piece's place in its row of shared memory: both where it is written and where it is read, no two threads of a
// quarter of a warp meet in a bank.
__device__ int place_of(int row, int piece) { return piece ^ ((row & 1) << 2 | (row >> 1 & 3)); }

// Which part of the depth is a warp's, in chunks.
struct Slice {
  int first = 0, count = 0;
};
__device__ Slice slice_of(int depth, int slices, int at) {
  const int chunks = (depth + kChunk - 1) / kChunk;
  const int first = at * chunks / slices;
  return {first, (at + 1) * chunks / slices - first};
}

// Brings the chunks of a warp's tiles, one after the other, into the warp's ring of stages.
template <class Job>
class Feed {
 public:
  __device__ Feed(Job& job, uint4* ring, const Slice& slice, int begin, int end, int group)
      : job_(job), ring_(ring), slice_(slice), tile_(begin), end_(end), group_(group) {
    if (slice_.count > 0 && tile_ < end_) place(job_.tile(tile_, group_));
  }
  __device__ void next() {
    if (slice_.count > 0 && tile_ < end_) {
      const int at = (slice_.first + chunk_) * kChunk + static_cast<int>(threadIdx.x) % 8 * 8;
      const int bytes = at < job_.depth() ? 16 : 0;
      uint4* to = ring_ + stage_ * (kTileRows * kChunkPieces);
      const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = i * 4 + lane / 8;
        copy16_ahead(reinterpret_cast<__nv_bfloat16*>(to + row * kChunkPieces + place_of(row, lane % 8)),
                        rows_[i] + (bytes == 0 ? 0 : at), bytes);
      }
      if (++chunk_ == slice_.count) {
        chunk_ = 0;
        if (++tile_ < end_) place(job_.tile(tile_, group_));
      }
    }
    commit_copies();
    stage_ = stage_ + 1 == kStages ? 0 : stage_ + 1;
  }

 private:
  __device__ void place(const Tile& tile) {
    const int row = static_cast<int>(threadIdx.x) % kWarp / 8;
    rows_[0] = tile.lower + max(min(row, tile.num_lower - 1), 0) * tile.stride;
    rows_[1] = tile.lower + max(min(row + 4, tile.num_lower - 1), 0) * tile.stride;
    rows_[2] = tile.upper + max(min(row, tile.num_upper - 1), 0) * tile.stride;
    rows_[3] = tile.upper + max(min(row + 4, tile.num_upper - 1), 0) * tile.stride;
  }

  Job& job_;
  uint4* const ring_;
  const Slice slice_;
  int tile_, chunk_ = 0, stage_ = 0;
  const int end_, group_;
  const __nv_bfloat16* rows_[4] = {};
};

// Tiles [begin, end) of the job for this block. kParts: x comes as one bf16 part, or as two whose products are added.
template <int kTiles, int kSteps, int kParts, class Job>
__device__ void run_tiles(Job& job, int slices) {
  static_assert(kTiles * kSteps * kParts <= kStreamKept);
  extern __shared__ uint4 shared[];
  constexpr int kRing = kStages * kTileRows * kChunkPieces;
  auto* sums = reinterpret_cast<float4*>(shared + kWarps * kRing);  // [2][warps][kTiles][lanes]
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = warp / slices, quad = lane % 4 * 8, row = lane / 4;
  const Slice slice = slice_of(job.depth(), slices, warp % slices);
  job.before(shared + kWarps * kRing + 2 * kWarps * kTiles * kWarp);
  const int64_t tiles = job.num_tiles(kWarps / slices);
  const int begin = static_cast<int>(tiles * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(tiles * (blockIdx.x + 1) / gridDim.x);
  const uint4* ring = shared + warp * kRing;
  RowsOfX rows;
  Feed<Job> feed(job, shared + warp * kRing, slice, begin, end, group);
  for (int n = 0; n < kStages - 1; ++n) feed.next();
  job.wait();
  uint4 x[kParts][kTiles][kSteps];
  int stage = 0, rows_at = -1;
  for (int tile = begin; tile < end; ++tile) {
    if (const int now = job.rows_of(tile); now != rows_at) {
      rows_at = now;
      rows = job.x(now);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const __nv_bfloat16* from = (part == 0 ? rows.x : rows.rest) + min(rows.first + n * 8 + row, rows.last) * rows.stride;
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            const int at = slice.first * kChunk + step * 32 + quad;
            x[part][n][step] = step < 2 * slice.count && at < job.depth() ? load16(from + at) : uint4{};
          }
        }
      }
    }
    float sum[kTiles][4] = {};
    const int tiles_of_x = (rows.last - rows.first) / 8 + 1;  // no more than are needed
#pragma unroll
    for (int chunk = 0; chunk < kSteps / 2; ++chunk) {
      if (chunk >= slice.count) break;
      feed.next();
      wait_copies<kStages - 1>();
      __syncwarp();
      const uint4* now = ring + stage * (kTileRows * kChunkPieces);
      stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 lo = now[row * kChunkPieces + place_of(row, half * 4 + lane % 4)];
        const uint4 hi = now[(row + 8) * kChunkPieces + place_of(row + 8, half * 4 + lane % 4)];
#pragma unroll
        for (int part = 0; part < kParts; ++part)
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            if (n > 0 && n >= tiles_of_x) break;
            const uint4 b = x[part][n][chunk * 2 + half];
            mma(sum[n], {lo.x, hi.x, lo.y, hi.y}, b.x, b.y);
            mma(sum[n], {lo.z, hi.z, lo.w, hi.w}, b.z, b.w);
          }
      }
      __syncwarp();
    }
    if (slices == 1) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int to = rows.first + n * 8 + lane % 4 * 2 + j;
          if (to <= rows.last) job.store(tile, group, row, to, rows.expert, sum[n][j], sum[n][2 + j]);
        }
      continue;
    }
    // All threads of the group add: what took one warp would be what all others wait for.
    float4* of_group = sums + (tile % 2 * kWarps + group * slices) * (kTiles * kWarp);
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
      if (n < tiles_of_x)
        of_group[(warp % slices * kTiles + n) * kWarp + lane] = {sum[n][0], sum[n][1], sum[n][2], sum[n][3]};
    __syncthreads();
    for (int at = warp % slices * kWarp + lane; at < tiles_of_x * 2 * kWarp; at += slices * kWarp) {
      const int n = at / (2 * kWarp), from = at / 2 % kWarp, j = at % 2;
      const int to = rows.first + n * 8 + from % 4 * 2 + j;
      if (to > rows.last) continue;
      const float* part = reinterpret_cast<const float*>(of_group + n * kWarp + from) + j;
      float lower = 0, upper = 0;
      for (int slice_of_sum = 0; slice_of_sum < slices; ++slice_of_sum, part += kTiles * kWarp * 4) {
        lower += part[0];
        upper += part[2];
      }
      job.store(tile, group, from / 4, to, rows.expert, lower, upper);
    }
  }
  wait_copies<0>();
}

// Rows of x in passes of 8 · kTiles, with up to kMostStreamed matrices, one behind the other.
template <int kTiles>
struct DenseJob {
  const StreamedProducts& args;
  int groups = 1, tiles_of_pass = 1;
  __device__ int depth() const { return args.depth; }
  __device__ void before(uint4*) {}
  __device__ void wait() { wait_for_kernels_before(); }
  __device__ int64_t num_tiles(int groups_of_tile) {
    groups = groups_of_tile;
    tiles_of_pass = (args.first_group[args.count] + groups - 1) / groups;
    return static_cast<int64_t>(tiles_of_pass) * ((args.rows + 8 * kTiles - 1) / (8 * kTiles));
  }
  __device__ int rows_of(int tile) const { return tile / tiles_of_pass; }
  __device__ RowsOfX x(int pass) const {
    const int first = pass * 8 * kTiles;
    return {static_cast<const __nv_bfloat16*>(args.x), static_cast<const __nv_bfloat16*>(args.rest), args.depth, first,
            min(first + 8 * kTiles, args.rows) - 1, 0};
  }
  __device__ int matrix_of(int at) const {
    int matrix = 0;
    while (matrix + 1 < args.count && at >= args.first_group[matrix + 1]) ++matrix;
    return matrix;
  }
  __device__ Tile tile(int tile, int group) const {
    const int at = min(tile % tiles_of_pass * groups + group, args.first_group[args.count] - 1);
    const StreamedMatrix& of = args.matrices[matrix_of(at)];
    const int out = (at - args.first_group[matrix_of(at)]) * kTileRows;
    const auto* w = static_cast<const __nv_bfloat16*>(of.w) + out * of.stride;
    const int upper = of.outs - out - 8;
    return {w, upper > 0 ? w + 8 * of.stride : w, of.stride, min(of.outs - out, 8), min(upper, 8)};
  }
  __device__ void store(int tile, int group, int row, int to, int, float lower, float upper) const {
    const int at = tile % tiles_of_pass * groups + group;
    if (at >= args.first_group[args.count]) return;
    const StreamedMatrix& of = args.matrices[matrix_of(at)];
    const int out = (at - args.first_group[matrix_of(at)]) * kTileRows + row;
    if (out < of.outs) put(of, to, out, lower);
    if (out + 8 < of.outs) put(of, to, out + 8, upper);
  }
  __device__ static void put(const StreamedMatrix& of, int row, int out, float value) {
    of.out[row * of.out_stride + out] =
        of.bias == nullptr ? value : value + number_at(of.bias, of.bias_num, out);
  }
};

// So few registers that the blocks of two kernels find room beside each other, where that can be.
template <int kTiles, int kSteps, int kParts>
constexpr int kBlocksAtOnce = kTiles * kSteps * kParts <= 8 ? 2 : 1;

template <int kTiles, int kSteps, int kParts>
__global__ void __launch_bounds__(kWarps* kWarp, kBlocksAtOnce<kTiles, kSteps, kParts>) dense_kernel(StreamedProducts args, int slices) {
  let_next_kernel_come();
  DenseJob<kTiles> job{args};
  run_tiles<kTiles, kSteps, kParts>(job, slices);
}

// The rows of an expert in passes of 8 · kTiles; tile after tile of a pass, pass after pass, expert after expert.
template <int kTiles>
struct ExpertPasses {
  const Experts& args;
  int tiles_of_pass = 1, groups = 1;
  const int32_t* first_pass = nullptr;  // [num_experts + 1], in shared memory

  // Expert counts are there before the kernel that comes before this one.
  __device__ int32_t start_of(int expert) const { return __ldcg(args.start + expert); }
  __device__ int passes_of(int expert) const {
    return (start_of(expert + 1) - start_of(expert) + 8 * kTiles - 1) / (8 * kTiles);
  }
  __device__ void count_passes(uint4* room) {
    auto* passes = reinterpret_cast<int32_t*>(room);
    if (threadIdx.x < kWarp) {
      int before = 0;
      for (int base = 0; base < args.num_experts; base += kWarp) {
        const int expert = base + static_cast<int>(threadIdx.x);
        int sum = expert < args.num_experts ? passes_of(expert) : 0;
        const int own = sum;
        for (int step = 1; step < kWarp; step *= 2) {
          const int other = __shfl_up_sync(0xffffffffu, sum, step);
          if (static_cast<int>(threadIdx.x) >= step) sum += other;
        }
        if (expert < args.num_experts) passes[expert] = before + sum - own;
        before += __shfl_sync(0xffffffffu, sum, kWarp - 1);
      }
      if (threadIdx.x == 0) passes[args.num_experts] = before;
    }
    __syncthreads();
    first_pass = passes;
  }
  __device__ int64_t count_tiles(int outs, int outs_a_group, int groups_of_tile) {
    groups = groups_of_tile;
    tiles_of_pass = (outs + outs_a_group * groups - 1) / (outs_a_group * groups);
    return static_cast<int64_t>(first_pass[args.num_experts]) * tiles_of_pass;
  }
  __device__ int expert_of(int pass) const {
    int low = 0, high = args.num_experts - 1;  // the last whose first pass is not behind
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_pass[middle] <= pass) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
  __device__ int pass_of(int tile) const { return tile / tiles_of_pass; }
  __device__ RowsOfX rows_of_pass(int pass, const void* x, int64_t stride) const {
    const int expert = expert_of(pass);
    const int first = start_of(expert) + (pass - first_pass[expert]) * 8 * kTiles;
    return {static_cast<const __nv_bfloat16*>(x), nullptr, stride, first,
            min(first + 8 * kTiles, static_cast<int>(start_of(expert + 1))) - 1, expert};
  }
  // The expert of a tile; tiles that follow each other mostly have the same.
  __device__ int expert_of_tile(int tile) {
    if (const int pass = pass_of(tile); pass != last_pass) {
      last_pass = pass;
      last_expert = expert_of(pass);
    }
    return last_expert;
  }
  int last_pass = -1, last_expert = 0;
};

// A group of a tile is 8 rows of gate and the same 8 of up, so that a thread holds both of a value.
template <int kTiles>
struct InnerJob : ExpertPasses<kTiles> {
  using Base = ExpertPasses<kTiles>;
  using Base::args;
  __device__ int depth() const { return args.hidden; }
  __device__ void before(uint4* room) {
    wait_for_kernels_before();
    let_next_kernel_come();
    this->count_passes(room);
  }
  __device__ void wait() {}
  __device__ int64_t num_tiles(int groups) { return this->count_tiles(args.inter, 8, groups); }
  __device__ int rows_of(int tile) const { return this->pass_of(tile); }
  __device__ RowsOfX x(int pass) const { return this->rows_of_pass(pass, args.x, args.x_stride); }
  __device__ int out_of(int tile, int group) const {
    return (tile % this->tiles_of_pass * this->groups + group) * 8;
  }
  __device__ Tile tile(int tile, int group) {
    if (const int expert = this->expert_of_tile(tile); expert != of_expert) {
      of_expert = expert;
      gate = static_cast<const __nv_bfloat16*>(args.gate[expert]);
      up = static_cast<const __nv_bfloat16*>(args.up[expert]);
    }
    const int out = min(out_of(tile, group), args.inter - 1), there = min(8, args.inter - out);
    // One stride for both: the caller sees to it.
    return {gate + out * args.gate_stride, up + out * args.gate_stride, args.gate_stride, there, there};
  }
  int of_expert = -1;
  const __nv_bfloat16 *gate = nullptr, *up = nullptr;
  __device__ void store(int tile, int group, int row, int to, int expert, float gate, float up) const {
    const int out = out_of(tile, group) + row;
    if (out >= args.inter) return;
    gate += bias_of(args.gate_bias, expert, args.bias_num, out);
    up += bias_of(args.up_bias, expert, args.bias_num, out);
    static_cast<__nv_bfloat16*>(args.inner)[static_cast<int64_t>(to) * args.inter + out] =
        __float2bfloat16_rn(gated(gate, up, args.gating));
  }
};

template <int kTiles>
struct DownJob : ExpertPasses<kTiles> {
  using Base = ExpertPasses<kTiles>;
  using Base::args;
  __device__ int depth() const { return args.inter; }
  // The inner kernel lets this one come only once the kernels before itself, which count, have ended.
  __device__ void before(uint4* room) {
    let_next_kernel_come();
    this->count_passes(room);
  }
  __device__ void wait() { wait_for_kernels_before(); }
  __device__ int64_t num_tiles(int groups) { return this->count_tiles(args.hidden, kTileRows, groups); }
  __device__ int rows_of(int tile) const { return this->pass_of(tile); }
  __device__ RowsOfX x(int pass) const { return this->rows_of_pass(pass, args.inner, args.inter); }
  __device__ int out_of(int tile, int group) const {
    return (tile % this->tiles_of_pass * this->groups + group) * kTileRows;
  }
  __device__ Tile tile(int tile, int group) {
    if (const int expert = this->expert_of_tile(tile); expert != of_expert) {
      of_expert = expert;
      down = static_cast<const __nv_bfloat16*>(args.down[expert]);
    }
    const int out = min(out_of(tile, group), args.hidden - 1);
    const __nv_bfloat16* w = down + out * args.down_stride;
    const int upper = args.hidden - out - 8;
    return {w, upper > 0 ? w + 8 * args.down_stride : w, args.down_stride, min(args.hidden - out, 8), min(upper, 8)};
  }
  int of_expert = -1;
  const __nv_bfloat16* down = nullptr;
  __device__ void store(int tile, int group, int row, int to, int expert, float lower, float upper) const {
    const int out = out_of(tile, group) + row;
    float* y = args.y + static_cast<int64_t>(to) * args.y_stride;
    if (out < args.hidden) y[out] = lower + bias_of(args.down_bias, expert, args.bias_num, out);
    if (out + 8 < args.hidden) y[out + 8] = upper + bias_of(args.down_bias, expert, args.bias_num, out + 8);
  }
};

template <int kTiles, int kSteps>
__global__ void __launch_bounds__(kWarps* kWarp, kBlocksAtOnce<kTiles, kSteps, 1>) inner_kernel(Experts args, int slices) {
  InnerJob<kTiles> job{{args}};
  run_tiles<kTiles, kSteps, 1>(job, slices);
}

template <int kTiles, int kSteps>
__global__ void __launch_bounds__(kWarps* kWarp, kBlocksAtOnce<kTiles, kSteps, 1>) down_kernel(Experts args, int slices) {
  DownJob<kTiles> job{{args}};
  run_tiles<kTiles, kSteps, 1>(job, slices);
}

int num_multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

template <class Kernel, class Args>
void launch(Kernel kernel, int tiles, size_t more, const Args& args, int slices, cudaStream_t stream) {
  const size_t shared = sizeof(uint4) * (kWarps * kStages * kTileRows * kChunkPieces +
                                         2 * kWarps * static_cast<size_t>(tiles) * kWarp) +
                        more;
  // The same for every launch of a kernel: ranks on other threads ask for the same.
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostStreamShared);
  launch_early(kernel, dim3(static_cast<unsigned>(num_multiprocessors())), kWarps * kWarp, shared, stream, args, slices);
}

// Calls body(steps) with the number of steps of 32 values that a slice has room for, as a constant.
template <int kTilesAndParts, class Body>
void with_steps(int steps, Body&& body) {
  if (steps <= 8) return body(std::integral_constant<int, 8>());
  if constexpr (kTilesAndParts <= 2)
    if (steps <= 16) return body(std::integral_constant<int, 16>());
  if constexpr (kTilesAndParts == 1) body(std::integral_constant<int, 32>());
}

template <int kTiles, int kParts>
void run_dense(const StreamedProducts& args, cudaStream_t stream) {
  const int slices = stream_slices(args.depth, kFewSteps);
  with_steps<kTiles * kParts>(stream_steps(args.depth, slices), [&](auto steps) {
    launch(dense_kernel<kTiles, steps, kParts>, kTiles, 0, args, slices, stream);
  });
}

template <int kTiles>
void run_experts(const Experts& args, cudaStream_t stream) {
  const size_t passes = sizeof(int32_t) * (static_cast<size_t>(args.num_experts) + 1);
  const int inner_slices = expert_slices(args.hidden, args.slots, 8 * kTiles);
  const int down_slices = expert_slices(args.inter, args.slots, 8 * kTiles);
  with_steps<kTiles>(stream_steps(args.hidden, inner_slices), [&](auto steps) {
    launch(inner_kernel<kTiles, steps>, kTiles, passes, args, inner_slices, stream);
  });
  with_steps<kTiles>(stream_steps(args.inter, down_slices), [&](auto steps) {
    launch(down_kernel<kTiles, steps>, kTiles, passes, args, down_slices, stream);
  });
}

}  // namespace

void add_streamed(StreamedProducts& products, const StreamedMatrix& matrix) {
  const int at = products.count++;
  products.matrices[at] = matrix;
  products.first_group[at + 1] =
      products.first_group[at] + static_cast<int>(ceil_div(matrix.outs, kTileRows));
}

void streamed_products(const StreamedProducts& args, cudaStream_t stream) {
  if (args.rows == 0 || args.first_group[args.count] == 0) return;
  if (args.rest == nullptr) return args.rows <= 8 ? run_dense<1, 1>(args, stream) : run_dense<2, 1>(args, stream);
  args.rows <= 8 ? run_dense<1, 2>(args, stream) : run_dense<2, 2>(args, stream);
}

void streamed_experts(const Experts& args, cudaStream_t stream) {
  if (args.slots == 0 || args.num_experts == 0) return;
  switch (expert_rows_a_pass(args.slots, args.num_experts, args.hidden, args.inter)) {
    case 8:
      return run_experts<1>(args, stream);
    case 16:
      return run_experts<2>(args, stream);
    default:
      return run_experts<4>(args, stream);
  }
}

}  // namespace lockstep::kernels::cuda
