// Products without the library: any dtype and alignment, one warp an output.
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"

namespace lockstep::kernels::cuda {
namespace {

template <class X, class W>
__device__ float warp_dot(const X* x, const W* w, int64_t count) {
  float sum = 0;
  for (int64_t at = threadIdx.x % kWarp; at < count; at += kWarp) sum += to_f32(x[at]) * to_f32(w[at]);
  return warp_sum(sum);
}

// blockIdx.x: warps of outputs; blockIdx.y strides over rows.
template <class W>
__global__ void linear_kernel(Mat x, const W* w, int64_t w_stride, int64_t outputs, Mat out) {
  const int64_t o = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (o >= outputs) return;
  for (int64_t row = blockIdx.y; row < x.rows; row += gridDim.y) {
    const float sum =
        warp_dot(static_cast<const float*>(x.data) + row * x.stride, w + o * w_stride, x.cols);
    if (threadIdx.x % kWarp == 0) static_cast<float*>(out.data)[row * out.stride + o] = sum;
  }
}

// A thread an output: neighbours read neighbouring columns of w.
template <class W>
__global__ void matmul_kernel(Mat x, const W* w, int64_t w_stride, Mat out) {
  const int64_t o = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (o >= out.cols) return;
  for (int64_t row = blockIdx.y; row < x.rows; row += gridDim.y) {
    const float* from = static_cast<const float*>(x.data) + row * x.stride;
    float sum = 0;
    for (int64_t at = 0; at < x.cols; ++at) sum += from[at] * to_f32(w[at * w_stride + o]);
    static_cast<float*>(out.data)[row * out.stride + o] = sum;
  }
}

// blockIdx.y is the expert, blockIdx.x a few of its outputs; a warp an output.
template <class W>
__global__ void plain_inner_kernel(Experts args) {
  const int expert = static_cast<int>(blockIdx.y);
  const int64_t o = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (o >= args.inter) return;
  const W* gate = static_cast<const W*>(args.gate[expert]) + o * args.gate_stride;
  const W* up = static_cast<const W*>(args.up[expert]) + o * args.up_stride;
  for (int64_t slot = args.start[expert]; slot < args.start[expert + 1]; ++slot) {
    const float* x = static_cast<const float*>(args.x) + slot * args.x_stride;
    const float g = warp_dot(x, gate, args.hidden), u = warp_dot(x, up, args.hidden);
    if (threadIdx.x % kWarp == 0)
      static_cast<float*>(args.inner)[slot * args.inter + o] =
          gated(g + bias_of(args.gate_bias, expert, args.bias_num, o),
                u + bias_of(args.up_bias, expert, args.bias_num, o), args.gating);
  }
}

template <class W>
__global__ void plain_down_kernel(Experts args) {
  const int expert = static_cast<int>(blockIdx.y);
  const int64_t o = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (o >= args.hidden) return;
  const W* down = static_cast<const W*>(args.down[expert]) + o * args.down_stride;
  for (int64_t slot = args.start[expert]; slot < args.start[expert + 1]; ++slot) {
    const float sum = warp_dot(static_cast<const float*>(args.inner) + slot * args.inter, down, args.inter);
    if (threadIdx.x % kWarp == 0)
      args.y[slot * args.y_stride + o] = sum + bias_of(args.down_bias, expert, args.bias_num, o);
  }
}

dim3 grid_of(int64_t outputs, int64_t outputs_a_block, int64_t rows) {
  constexpr int64_t kMostRows = 4096;
  return {static_cast<unsigned>(ceil_div(outputs, outputs_a_block)),
          static_cast<unsigned>(rows < kMostRows ? rows : kMostRows)};
}

}  // namespace

void plain_linear(const Mat& x, const Mat& w, const Mat& out, cudaStream_t stream) {
  if (x.rows == 0 || out.cols == 0) return;
  with_num(w.num, w.data, [&](const auto* data) {
    linear_kernel<<<grid_of(out.cols, kThreads / kWarp, x.rows), kThreads, 0, stream>>>(x, data, w.stride,
                                                                                       out.cols, out);
  });
}

void plain_matmul(const Mat& x, const Mat& w, const Mat& out, cudaStream_t stream) {
  if (x.rows == 0 || out.cols == 0) return;
  with_num(w.num, w.data, [&](const auto* data) {
    matmul_kernel<<<grid_of(out.cols, kThreads, x.rows), kThreads, 0, stream>>>(x, data, w.stride, out);
  });
}

void experts_plain(const Experts& args, cudaStream_t stream) {
  if (args.slots == 0 || args.num_experts == 0 || args.hidden == 0) return;
  const auto experts = static_cast<unsigned>(args.num_experts);
  const auto tiles = [](int outputs) { return static_cast<unsigned>(ceil_div(outputs, kThreads / kWarp)); };
  const auto run = [&](auto tag) {
    using W = decltype(tag);
    if (args.inter > 0)
      plain_inner_kernel<W><<<dim3(tiles(args.inter), experts), kThreads, 0, stream>>>(args);
    plain_down_kernel<W><<<dim3(tiles(args.hidden), experts), kThreads, 0, stream>>>(args);
  };
  if (args.num == Num::kBF16) {
    run(__nv_bfloat16{});
  } else {
    run(float{});
  }
}

}  // namespace lockstep::kernels::cuda
