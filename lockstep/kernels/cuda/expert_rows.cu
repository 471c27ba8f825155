// Many rows on their way to experts and back: each is read once, whole, eight values a thread.
#include "lockstep/kernels/cuda/attention_pairs.cuh"
#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"

namespace lockstep::kernels::cuda {
namespace {

struct Eight {
  float x[8];
};

// Eight values as they lie.
template <class T>
struct Raw;
template <>
struct Raw<float> {
  float4 low, high;
  __device__ Eight values() const { return {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}; }
};
template <>
struct Raw<__nv_bfloat16> {
  uint4 pairs;
  __device__ Eight values() const {
    const uint32_t words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a bf16 is the upper half of the float32 that it stands for
      eight.x[2 * i] = __uint_as_float(words[i] << 16);
      eight.x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return eight;
  }
};

template <class T>
__device__ Raw<T> load_raw(const T* from) {
  return *reinterpret_cast<const Raw<T>*>(from);
}
__device__ void store_eight(float* to, const Eight& eight) {
  const float* x = eight.x;
  reinterpret_cast<float4*>(to)[0] = {x[0], x[1], x[2], x[3]};
  reinterpret_cast<float4*>(to)[1] = {x[4], x[5], x[6], x[7]};
}
__device__ void store_eight(__nv_bfloat16* to, const Eight& eight) {
  const float* x = eight.x;
  *reinterpret_cast<uint4*>(to) = {pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])};
}

// A block a row of a source.
__global__ void __launch_bounds__(kThreads) spread_rows_kernel(Place args) {
  begin_early_kernel();
  int source = 0;
  int64_t row = blockIdx.x;
  while (row >= args.sources[source].rows) row -= args.sources[source++].rows;
  const float* from = args.rows.data[source] + row * args.rows.stride[source];
  const int32_t* slot_of = args.sources[source].slot_of + row * args.top_k;
  for (int64_t at = threadIdx.x * 8; at < args.out.cols; at += kThreads * 8) {
    const Eight x = load_raw(from + at).values();
    for (int k = 0; k < args.top_k; ++k) {
      const int64_t slot = slot_of[k];
      if (slot < 0) continue;
      if (args.rounded != nullptr) store_eight(static_cast<__nv_bfloat16*>(args.rounded) + slot * args.out.cols + at, x);
      if (!args.rounded_alone) store_eight(static_cast<float*>(args.out.data) + slot * args.out.stride + at, x);
    }
  }
}

// Eight columns of a row from `at` on, of what is pulled and of `plus`; kAtOnce rows of y are on their way before the
// first is added.
template <class Y, int kAtOnce>
__device__ Eight pulled(const Pull& args, int64_t row, int64_t at) {
  const int total = args.top_k * args.num_sources;  // in the order of k, then of the sources
  Eight sum = {};
  for (int first = 0; first < total; first += kAtOnce) {
    Raw<Y> y[kAtOnce];
    float weight[kAtOnce];
    bool there[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int one = min(first + n, total - 1), k = one / args.num_sources, source = one % args.num_sources;
      const int64_t slot = args.slot_of[source][row * args.top_k + k];
      there[n] = first + n < total && slot >= 0;
      weight[n] = args.weight[row * args.top_k + k];
      if (there[n]) y[n] = load_raw(static_cast<const Y*>(args.y[source]) + slot * args.y_stride[source] + at);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const Eight values = y[n].values();
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (there[n]) sum.x[i] += weight[n] * values.x[i];
    }
  }
  return sum;
}

__device__ void add(Eight& sum, const Mat& more, int64_t row, int64_t at) {
  const Eight x = load_raw(static_cast<const float*>(more.data) + row * more.stride + at).values();
#pragma unroll
  for (int i = 0; i < 8; ++i) sum.x[i] += x.x[i];
}

__device__ void store_row(const Mat& to, int64_t row, int64_t at, const Eight& eight) {
  store_eight(static_cast<float*>(to.data) + row * to.stride + at, eight);
}

// A block a row.
template <class Y, int kAtOnce>
__global__ void __launch_bounds__(kThreads) pull_rows_kernel(Pull args) {
  begin_early_kernel();
  const int64_t row = blockIdx.x;
  for (int64_t at = threadIdx.x * 8; at < args.out.cols; at += kThreads * 8) {
    Eight sum = pulled<Y, kAtOnce>(args, row, at);
    if (args.plus.data != nullptr) add(sum, args.plus, row, at);
    store_row(args.out, row, at, sum);
    if (args.onto.data == nullptr) continue;
    add(sum, args.onto, row, at);
    store_row(args.onto, row, at, sum);
  }
}

__device__ Eight load_weights(const void* weight, Num num, int64_t at) {
  return num == Num::kBF16 ? load_raw(static_cast<const __nv_bfloat16*>(weight) + at).values()
                           : load_raw(static_cast<const float*>(weight) + at).values();
}

// A block a row that stays in registers, kPieces times eight values a thread.
template <class Y, int kAtOnce, int kPieces>
__global__ void __launch_bounds__(kThreads) pull_norm_kernel(PullNorm args) {
  begin_early_kernel();
  const int64_t row = blockIdx.x, cols = args.out.cols;
  Eight kept[kPieces];
  float squares = 0;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int64_t at = (static_cast<int64_t>(piece) * kThreads + threadIdx.x) * 8;
    if (at >= cols) break;
    kept[piece] = pulled<Y, kAtOnce>(args.pull, row, at);
    if (args.pull.plus.data != nullptr) add(kept[piece], args.pull.plus, row, at);
    add(kept[piece], args.residual, row, at);
    store_row(args.residual, row, at, kept[piece]);
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += kept[piece].x[i] * kept[piece].x[i];
  }
  const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(cols) + args.eps);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int64_t at = (static_cast<int64_t>(piece) * kThreads + threadIdx.x) * 8;
    if (at >= cols) break;
    const Eight weight = load_weights(args.weight, args.weight_num, at);
    Eight normed, rest;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      normed.x[i] = weight.x[i] * (kept[piece].x[i] * scale);
      rest.x[i] = normed.x[i] - __bfloat162float(__float2bfloat16_rn(normed.x[i]));
    }
    store_eight(static_cast<__nv_bfloat16*>(args.rounded.rounded) + row * cols + at, normed);
    if (args.rounded_alone) continue;
    store_row(args.out, row, at, normed);
    store_eight(static_cast<__nv_bfloat16*>(args.rounded.rest) + row * cols + at, rest);
  }
}

bool whole(const void* data, int64_t stride) { return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0; }
bool whole(const Mat& x) { return x.data == nullptr || whole(x.data, x.stride); }

}  // namespace

bool spread_rows(const Place& args, cudaStream_t stream) {
  int64_t rows = 0;
  bool fits = args.out.cols % 8 == 0 && whole(args.out) && whole(args.rounded, 0);
  for (int s = 0; s < args.num_sources; ++s) {
    rows += args.sources[s].rows;
    fits = fits && whole(args.rows.data[s], args.rows.stride[s]);
  }
  if (fits && rows > 0)
    launch_early(spread_rows_kernel, dim3(static_cast<unsigned>(rows)), kThreads, 0, stream, args);
  return fits;
}

namespace {

bool pulls_whole_pieces(const Pull& args) {
  bool fits = args.out.cols % 8 == 0 && whole(args.out) && whole(args.plus) && whole(args.onto);
  for (int s = 0; s < args.num_sources; ++s) fits = fits && whole(args.y[s], args.y_stride[s]);
  return fits;
}

constexpr int kMostPieces = 4;

template <class Y, int kAtOnce>
void run_pull_norm(const PullNorm& args, cudaStream_t stream) {
  const auto kernel = args.out.cols <= kThreads * 8 ? pull_norm_kernel<Y, kAtOnce, 1> : pull_norm_kernel<Y, kAtOnce, kMostPieces>;
  launch_early(kernel, dim3(static_cast<unsigned>(args.out.rows)), kThreads, 0, stream, args);
}

}  // namespace

bool fits_pull_norm(const PullNorm& args) {
  return pulls_whole_pieces(args.pull) && whole(args.residual) && whole(args.out) && whole(args.weight, 0) &&
         args.out.cols <= int64_t{kMostPieces} * kThreads * 8;
}

void pull_norm_rows(const PullNorm& args, cudaStream_t stream) {
  if (args.out.rows == 0 || args.out.cols == 0) return;
  if (args.pull.y_num == Num::kBF16) return run_pull_norm<__nv_bfloat16, 8>(args, stream);
  run_pull_norm<float, 4>(args, stream);
}

bool pull_rows(const Pull& args, cudaStream_t stream) {
  if (!pulls_whole_pieces(args)) return false;
  if (args.out.rows == 0) return true;
  const auto run = [&](auto kernel) {
    launch_early(kernel, dim3(static_cast<unsigned>(args.out.rows)), kThreads, 0, stream, args);
  };
  if (args.y_num == Num::kBF16) {
    run(pull_rows_kernel<__nv_bfloat16, 8>);
  } else {
    run(pull_rows_kernel<float, 4>);
  }
  return true;
}

}  // namespace lockstep::kernels::cuda
