// Products of few rows with many weights: bound by how fast weights come from memory. See streaming.cuh.
#include "lockstep/kernels/cuda/streaming.cuh"

namespace lockstep::kernels::cuda {
namespace {

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
  __device__ uint4 load_x(const RowsOfX& rows, int part, int row, int at) const { return load_stored(rows, part, row, at); }
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

template <int kTiles, int kSteps, int kParts>
__global__ void __launch_bounds__(kWarps* kWarp, kBlocksAtOnce<kTiles, kSteps, kParts>) dense_kernel(StreamedProducts args, int slices) {
  let_next_kernel_come();
  DenseJob<kTiles> job{args};
  run_tiles<kTiles, kSteps, kParts>(job, slices);
}

// A few whole rows of x.
struct FewRowsJob : DenseJob<1> {
  __device__ void before(__nv_bfloat16*) {}
  __device__ void wait(__nv_bfloat16* to) {
    wait_for_kernels_before();
    const int pieces = args.depth / 8, pitch = few_rows_pitch(args.depth);
#pragma unroll 1
    for (int row = 0; row < args.rows; ++row) {
      const auto* from = reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(args.x) + static_cast<int64_t>(row) * args.depth);
#pragma unroll 2
      for (int at = threadIdx.x; at < pitch / 8; at += kWarps * kWarp)
        reinterpret_cast<uint4*>(to + row * pitch)[at] = at < pieces ? __ldcg(from + at) : uint4{};
    }
    __syncthreads();
  }
  __device__ int num_rows(int) const { return args.rows; }
  __device__ int place_of_row(int, int row) const { return row * few_rows_pitch(args.depth); }
  __device__ void store_few(int tile, int group, int row, int to, float lower, float upper) const {
    store(tile, group, row, to, 0, lower, upper);
  }
};

__global__ void __launch_bounds__(kWarps* kWarp, 2) few_rows_kernel(StreamedProducts args, int slices) {
  let_next_kernel_come();
  FewRowsJob job{{args}};
  run_few_rows(job, slices);
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
  __device__ uint4 load_x(const RowsOfX& rows, int part, int row, int at) const { return load_stored(rows, part, row, at); }
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

template <int kTiles, int kParts>
void run_dense(const StreamedProducts& args, cudaStream_t stream) {
  const int slices = stream_slices(args.depth, kFewSteps);
  with_steps<kTiles * kParts>(stream_steps(args.depth, slices), [&](auto steps) {
    launch_streaming(dense_kernel<kTiles, steps, kParts>, kTiles, 0, stream, args, slices);
  });
}

template <int kTiles>
void run_experts(const Experts& args, cudaStream_t stream) {
  const size_t passes = sizeof(int32_t) * (static_cast<size_t>(args.num_experts) + 1);
  const int inner_slices = expert_slices(args.hidden, args.slots, 8 * kTiles);
  const int down_slices = expert_slices(args.inter, args.slots, 8 * kTiles);
  with_steps<kTiles>(stream_steps(args.hidden, inner_slices), [&](auto steps) {
    launch_streaming(inner_kernel<kTiles, steps>, kTiles, passes, stream, args, inner_slices);
  });
  with_steps<kTiles>(stream_steps(args.inter, down_slices), [&](auto steps) {
    launch_streaming(down_kernel<kTiles, steps>, kTiles, passes, stream, args, down_slices);
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
  if (args.rest == nullptr && args.rows <= 8 && few_rows_bytes(args.rows, args.depth) <= kMostFewRows)
    return launch_streaming(few_rows_kernel, 1, static_cast<size_t>(few_rows_bytes(args.rows, args.depth)), stream, args,
                            stream_slices(args.depth, kFewSteps));
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
