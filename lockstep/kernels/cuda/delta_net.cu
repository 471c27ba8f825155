// The causal convolution and the gated delta rule, row after row of a sequence as the reference has it: right
// for prompts and decoding alike, not yet fast for long prompts.
#include "lockstep/kernels/cuda/elements.cuh"
#include "lockstep/kernels/cuda/geometry.h"

namespace lockstep::kernels::cuda {
namespace {

__device__ const float* row_of(const Mat& x, int64_t row) {
  return static_cast<const float*>(x.data) + row * x.stride;
}
__device__ float* head_of(const Heads& x, int64_t row, int64_t head) {
  return x.data + row * x.row_stride + head * x.head_stride;
}

// The window of a sequence at row `at` counted from its first new one; below 0 it is the state's.
__device__ float window(const CausalConv& args, const StateSequence& sequence, const float* state, int at,
                        int64_t channel) {
  if (at >= 0) return row_of(args.x, sequence.first_row + at)[channel];
  const int64_t kept = args.weight.rows - 1;
  return sequence.starts ? 0.0f : state[(kept + at) * args.x.cols + channel];
}

// A thread a channel.
__global__ void conv_kernel(CausalConv args) {
  const StateSequence sequence = args.sequences[blockIdx.x];
  const int64_t channel = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (channel >= args.x.cols) return;
  const int taps = static_cast<int>(args.weight.rows), kept = taps - 1;
  float* state = args.state + static_cast<int64_t>(sequence.slot) * kept * args.x.cols;
  for (int row = 0; row < sequence.num_rows; ++row) {
    float sum = 0;
    for (int tap = 0; tap < taps; ++tap)
      sum += row_of(args.weight, tap)[channel] * window(args, sequence, state, row - kept + tap, channel);
    static_cast<float*>(args.out.data)[(sequence.first_row + row) * args.out.stride + channel] =
        sum / (1.0f + expf(-sum));
  }
  // Ascending: what is read lies behind what is written.
  for (int at = 0; at < kept; ++at)
    state[at * args.x.cols + channel] = window(args, sequence, state, sequence.num_rows - kept + at, channel);
}

// A warp a head.
__global__ void l2_norm_kernel(Heads x, float eps, float scale) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (at >= x.rows * x.heads) return;
  float* values = head_of(x, at / x.heads, at % x.heads);
  float squares = 0;
  for (int i = threadIdx.x % kWarp; i < x.width; i += kWarp) squares += values[i] * values[i];
  const float by = scale / sqrtf(warp_sum(squares) + eps);
  for (int i = threadIdx.x % kWarp; i < x.width; i += kWarp) values[i] *= by;
}

__device__ float number(const void* data, Num num, int64_t at) {
  return num == Num::kBF16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at])
                           : static_cast<const float*>(data)[at];
}

__global__ void gates_kernel(DeltaGates args) {
  const int64_t row = blockIdx.x;
  for (int64_t head = threadIdx.x; head < args.a.cols; head += blockDim.x) {
    const float a = row_of(args.a, row)[head] + number(args.dt_bias, args.dt_bias_num, head);
    const float b = row_of(args.b, row)[head];
    const float softplus = a > 40 ? a : log1pf(expf(a));  // the exponential must not overflow
    const float rate = expf(number(args.a_log, args.a_log_num, head));
    static_cast<float*>(args.decay.data)[row * args.decay.stride + head] = expf(-rate * softplus);
    static_cast<float*>(args.beta.data)[row * args.beta.stride + head] = 1.0f / (1.0f + expf(-b));
  }
}

// A block a sequence and head, a thread a column of the state: the columns do not meet.
__global__ void gated_delta_kernel(GatedDelta args) {
  extern __shared__ float shared[];
  const StateSequence sequence = args.sequences[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y), key = args.q.width, value = args.v.width;
  const int key_head = (args.first_in_group + head) / args.group;
  float *q = shared, *k = shared + key;
  float* state = args.state + (static_cast<int64_t>(sequence.slot) * args.v.heads + head) * key * value;
  if (sequence.starts)
    for (int i = 0; i < key; ++i)
      for (int j = threadIdx.x; j < value; j += blockDim.x) state[i * value + j] = 0;
  for (int at = 0; at < sequence.num_rows; ++at) {
    const int64_t row = sequence.first_row + at;
    __syncthreads();
    for (int i = threadIdx.x; i < key; i += blockDim.x) {
      q[i] = head_of(args.q, row, key_head)[i];
      k[i] = head_of(args.k, row, key_head)[i];
    }
    __syncthreads();
    const float decay = row_of(args.decay, row)[head], beta = row_of(args.beta, row)[head];
    for (int j = threadIdx.x; j < value; j += blockDim.x) {
      float had = 0, read = 0;
      for (int i = 0; i < key; ++i) had += decay * state[i * value + j] * k[i];
      const float correction = beta * (head_of(args.v, row, head)[j] - had);
      for (int i = 0; i < key; ++i) {
        const float now = decay * state[i * value + j] + k[i] * correction;
        read += now * q[i];
        state[i * value + j] = now;
      }
      head_of(args.out, row, head)[j] = read;
    }
  }
}

}  // namespace

void causal_conv(const CausalConv& args, cudaStream_t stream) {
  if (args.num_sequences == 0 || args.x.cols == 0) return;
  conv_kernel<<<dim3(static_cast<unsigned>(args.num_sequences),
                     static_cast<unsigned>(ceil_div(args.x.cols, kThreads))),
                kThreads, 0, stream>>>(args);
}

void l2_norm(const Heads& x, float eps, float scale, cudaStream_t stream) {
  if (x.rows * x.heads == 0 || x.width == 0) return;
  l2_norm_kernel<<<static_cast<unsigned>(ceil_div(x.rows * x.heads, kThreads / kWarp)), kThreads, 0, stream>>>(
      x, eps, scale);
}

void delta_gates(const DeltaGates& args, cudaStream_t stream) {
  if (args.a.rows == 0 || args.a.cols == 0) return;
  gates_kernel<<<static_cast<unsigned>(args.a.rows), 64, 0, stream>>>(args);
}

void gated_delta(const GatedDelta& args, cudaStream_t stream) {
  if (args.num_sequences == 0 || args.v.heads == 0 || args.v.width == 0) return;
  gated_delta_kernel<<<dim3(static_cast<unsigned>(args.num_sequences), static_cast<unsigned>(args.v.heads)), 128,
                       static_cast<size_t>(2 * args.q.width) * sizeof(float), stream>>>(args);
}

}  // namespace lockstep::kernels::cuda
