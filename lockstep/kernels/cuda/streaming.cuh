#pragma once
// How weights are streamed through shared memory and multiplied with few rows: what the .cu files of such products
// share, and they alone include. One block stays on every multiprocessor; where registers leave room beside it
// (kBlocksAtOnce), a kernel that starts early waits there for its inputs with its first weights. A block takes a run of
// tiles, 16 rows of weights each, of which every warp multiplies a slice of the depth. A warp brings its own pieces of weights into shared memory,
// several ahead, without ever waiting for another warp; what it multiplies them with, its slice of up to 32 rows of x,
// stays in registers as long as the tiles belong to the same rows. What 32 values of depth mean inside the matrix
// instruction is the same permutation for both operands. The slices of a tile are added in ascending order.
#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/tensor_cores.cuh"

namespace lockstep::kernels::cuda {

inline constexpr int kWarps = kStreamWarps, kStages = kStreamStages, kTileRows = kStreamTileRows, kChunk = kStreamChunk;
inline constexpr int kChunkPieces = kChunk / 8;  // of 16 bytes
inline constexpr int kRing = kStages * kTileRows * kChunkPieces;  // of a warp, in pieces
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

__device__ inline uint4 load16(const __nv_bfloat16* from) { return *reinterpret_cast<const uint4*>(from); }

// A piece's place in its row of shared memory: both where it is written and where it is read, no two threads of a
// quarter of a warp meet in a bank.
__device__ inline int place_of(int row, int piece) { return piece ^ ((row & 1) << 2 | (row >> 1 & 3)); }

// Which part of the depth is a warp's, in chunks.
struct Slice {
  int first = 0, count = 0;
};
__device__ inline Slice slice_of(int depth, int slices, int at) {
  const int chunks = (depth + kChunk - 1) / kChunk;
  const int first = at * chunks / slices;
  return {first, (at + 1) * chunks / slices - first};
}

// Values between two rows of x in shared memory: whole chunks, and neighbours' pieces lie in different banks.
__device__ inline int few_rows_pitch(int depth) { return (depth + kChunk - 1) / kChunk * kChunk + kFewRowsPad; }

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

// Eight values of a row of x; what a job calls that has them as the matrix instruction takes them.
__device__ inline uint4 load_stored(const RowsOfX& rows, int part, int row, int at) {
  return load16((part == 0 ? rows.x : rows.rest) + row * rows.stride + at);
}

// Tiles [begin, end) of the job for this block. kParts: x comes as one bf16 part, or as two whose products are added.
template <int kTiles, int kSteps, int kParts, class Job>
__device__ void run_tiles(Job& job, int slices) {
  static_assert(kTiles * kSteps * kParts <= kStreamKept);
  extern __shared__ uint4 shared[];
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
#pragma unroll 1
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
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            const int at = slice.first * kChunk + step * 32 + quad;
            const bool there = step < 2 * slice.count && at < job.depth();
            x[part][n][step] = there ? job.load_x(rows, part, min(rows.first + n * 8 + row, rows.last), at) : uint4{};
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

// The same for up to 8 rows of x that fit in shared memory, whole: the bits are those of run_tiles(). A kernel of one
// layer runs once, so its instructions come from memory too: loops that are not unrolled start sooner.
template <class Job>
__device__ void run_few_rows(Job& job, int slices) {
  extern __shared__ uint4 shared[];
  auto* sums = reinterpret_cast<float4*>(shared + kWarps * kRing);  // [2][warps][lanes]
  auto* x = reinterpret_cast<__nv_bfloat16*>(shared + kWarps * kRing + 2 * kWarps * kWarp);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = warp / slices, quad = lane % 4 * 8, row = lane / 4;
  const Slice slice = slice_of(job.depth(), slices, warp % slices);
  job.before(x);
  const int64_t tiles = job.num_tiles(kWarps / slices);
  const int begin = static_cast<int>(tiles * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(tiles * (blockIdx.x + 1) / gridDim.x);
  const uint4* ring = shared + warp * kRing;
  Feed<Job> feed(job, shared + warp * kRing, slice, begin, end, group);
#pragma unroll 1
  for (int n = 0; n < kStages - 1; ++n) feed.next();
  job.wait(x);
  int stage = 0;
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    const int num_rows = job.num_rows(tile);
    const __nv_bfloat16* mine = x + job.place_of_row(tile, min(row, num_rows - 1)) + slice.first * kChunk + quad;
    float sum[4] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < slice.count; ++chunk) {
      feed.next();
      wait_copies<kStages - 1>();
      __syncwarp();
      const uint4* now = ring + stage * (kTileRows * kChunkPieces);
      stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 lo = now[row * kChunkPieces + place_of(row, half * 4 + lane % 4)];
        const uint4 hi = now[(row + 8) * kChunkPieces + place_of(row + 8, half * 4 + lane % 4)];
        const uint4 b = load16(mine + chunk * kChunk + half * 32);
        mma(sum, {lo.x, hi.x, lo.y, hi.y}, b.x, b.y);
        mma(sum, {lo.z, hi.z, lo.w, hi.w}, b.z, b.w);
      }
      __syncwarp();
    }
    float4* of_group = sums + (tile % 2 * kWarps + group * slices) * kWarp;
    of_group[warp % slices * kWarp + lane] = {sum[0], sum[1], sum[2], sum[3]};
    __syncthreads();
#pragma unroll 1
    for (int at = warp % slices * kWarp + lane; at < 2 * kWarp; at += slices * kWarp) {
      const int from = at / 2, j = at % 2, to = from % 4 * 2 + j;
      if (to >= num_rows) continue;
      const float* part = reinterpret_cast<const float*>(of_group + from) + j;
      float lower = 0, upper = 0;
      for (int slice_of_sum = 0; slice_of_sum < slices; ++slice_of_sum, part += kWarp * 4) {
        lower += part[0];
        upper += part[2];
      }
      job.store_few(tile, group, from / 4, to, lower, upper);
    }
  }
  wait_copies<0>();
}

inline int num_multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

// Calls body(steps) with the number of steps of 32 values that a slice has room for, as a constant.
template <int kTilesAndParts, class Body>
void with_steps(int steps, Body&& body) {
  if (steps <= 8) return body(std::integral_constant<int, 8>());
  if constexpr (kTilesAndParts <= 2)
    if (steps <= 16) return body(std::integral_constant<int, 16>());
  if constexpr (kTilesAndParts == 1) body(std::integral_constant<int, 32>());
}

// A block on every multiprocessor. `more`: bytes of shared memory behind the rings and the sums of `tiles` tiles of rows.
template <class Kernel, class... Args>
void launch_streaming(Kernel kernel, int tiles, size_t more, cudaStream_t stream, const Args&... args) {
  const size_t shared = sizeof(uint4) * (kWarps * kRing + 2 * kWarps * static_cast<size_t>(tiles) * kWarp) + more;
  // The same for every launch of a kernel: ranks on other threads ask for the same.
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostStreamShared);
  launch_early(kernel, dim3(static_cast<unsigned>(num_multiprocessors())), kWarps * kWarp, shared, stream, args...);
}

// So few registers that small kernels find room beside it, where that can be.
template <int kTiles, int kSteps, int kParts>
inline constexpr int kBlocksAtOnce = kTiles * kSteps * kParts <= 8 ? 2 : 1;

}  // namespace lockstep::kernels::cuda
