// Queries, keys and values between their products and attention, in one kernel: a warp a head of a row norms it,
// turns it and writes it back, or into the cache.
#include "lockstep/kernels/cuda/early_launch.cuh"
#include "lockstep/kernels/cuda/elements.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kWarps = kThreads / kWarp;
constexpr int64_t kManyRows = 512;  // from here on a warp takes kHeadsAtOnce heads of a row, before one

// A lane holds values lane, lane + 32, … of a head; kOfALane is room for them.
template <int kOfALane>
struct Head {
  float x[kOfALane];
};

// What turns a head: the same for all heads of a row.
template <int kOfALane>
struct Angles {
  float cos[kOfALane / 2], sin[kOfALane / 2];
};

template <int kOfALane>
__device__ Head<kOfALane> load_head(const float* from, int width) {
  Head<kOfALane> head;
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kOfALane; ++j) head.x[j] = j * kWarp < width ? from[j * kWarp + lane] : 0.0f;
  return head;
}

template <int kOfALane>
__device__ Angles<kOfALane> load_angles(const AttentionRows& args, int position) {
  Angles<kOfALane> angles;
  const int lane = threadIdx.x % kWarp, pairs = args.dim / 2 / kWarp;
#pragma unroll
  for (int j = 0; j < kOfALane / 2; ++j) {
    const int64_t at = position * args.table_stride + j * kWarp + lane;
    angles.cos[j] = j < pairs ? args.cos[at] : 1.0f;
    angles.sin[j] = j < pairs ? args.sin[at] : 0.0f;
  }
  return angles;
}

template <int kOfALane>
__device__ void norm_head(Head<kOfALane>& head, int width, const void* weight, Num num, float eps) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kOfALane; ++j) squares += head.x[j] * head.x[j];
  const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(width) + eps);
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kOfALane; ++j)
    if (j * kWarp < width) head.x[j] = number_at(weight, num, j * kWarp + lane) * (head.x[j] * scale);
}

// Value i turns with value i + dim / 2: both are the same lane's.
template <int kOfALane>
__device__ void turn_head(Head<kOfALane>& head, int dim, const Angles<kOfALane>& angles) {
  const int pairs = dim / 2 / kWarp;
  Head<kOfALane> turned = head;
#pragma unroll
  for (int j = 0; j < kOfALane / 2; ++j) {
    if (j >= pairs) break;
    float b = 0;
#pragma unroll
    for (int k = 0; k < kOfALane; ++k)
      if (k == j + pairs) b = head.x[k];
    const float a = head.x[j];
    turned.x[j] = a * angles.cos[j] - b * angles.sin[j];
#pragma unroll
    for (int k = 0; k < kOfALane; ++k)
      if (k == j + pairs) turned.x[k] = b * angles.cos[j] + a * angles.sin[j];
  }
  head = turned;
}

template <int kOfALane, class T>
__device__ void store_head(const Head<kOfALane>& head, int width, T* to) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kOfALane; ++j)
    if (j * kWarp < width) store(to + j * kWarp + lane, head.x[j]);
}

// Heads first, first + kWarps, … of a row of q, all on their way before the first is needed.
template <int kOfALane, int kHeadsAtOnce>
__device__ void queries(const AttentionRows& args, int64_t row, int first) {
  float* q = static_cast<float*>(args.q.data) + row * args.q.stride;
  const Angles<kOfALane> angles = load_angles<kOfALane>(args, args.q_positions[row]);
  wait_for_kernels_before();
  Head<kOfALane> heads[kHeadsAtOnce];
#pragma unroll
  for (int n = 0; n < kHeadsAtOnce; ++n) {
    const int head = min(first + n * kWarps, args.num_heads - 1);
    heads[n] = load_head<kOfALane>(q + static_cast<int64_t>(head) * args.query_stride, args.head_dim);
  }
#pragma unroll
  for (int n = 0; n < kHeadsAtOnce; ++n) {
    const int head = first + n * kWarps;
    if (head >= args.num_heads) return;
    if (args.q_norm != nullptr) norm_head(heads[n], args.head_dim, args.q_norm, args.norm_num, args.eps);
    turn_head(heads[n], args.dim, angles);
    store_head(heads[n], args.head_dim, q + static_cast<int64_t>(head) * args.query_stride);
  }
}

template <int kOfALane, class T>
__device__ void key_or_value(const AttentionRows& args, const RowMove& move, const Angles<kOfALane>& angles, int head) {
  const int width = args.head_dim;
  const bool is_key = head < args.num_kv_heads;
  const int column = (is_key ? head : head - args.num_kv_heads) * width;
  const Mat &from = is_key ? args.k : args.v, &to = is_key ? args.keys : args.values;
  Head<kOfALane> one = load_head<kOfALane>(static_cast<const float*>(from.data) + move.src * from.stride + column, width);
  if (is_key) {
    if (args.k_norm != nullptr) norm_head(one, width, args.k_norm, args.norm_num, args.eps);
    turn_head(one, args.dim, angles);
  }
  store_head(one, width, static_cast<T*>(to.data) + move.dst * to.stride + column);
}

// blockIdx.x: first the rows of q, then the moves of k and v; blockIdx.y: some of their heads.
template <int kOfALane, int kHeadsAtOnce, class T>
__global__ void __launch_bounds__(kThreads) attention_rows_kernel(AttentionRows args) {
  let_next_kernel_come();  // positions, moves and angles are the host's: they are there
  const int first = static_cast<int>(blockIdx.y) * kWarps * kHeadsAtOnce + static_cast<int>(threadIdx.x) / kWarp;
  if (blockIdx.x < args.q.rows) return queries<kOfALane, kHeadsAtOnce>(args, blockIdx.x, first);
  const RowMove move = args.moves.listed[blockIdx.x - args.q.rows];
  const Angles<kOfALane> angles = load_angles<kOfALane>(args, args.k_positions[move.src]);
  wait_for_kernels_before();
  for (int n = 0; n < kHeadsAtOnce; ++n)
    if (const int head = first + n * kWarps; head < 2 * args.num_kv_heads)
      key_or_value<kOfALane, T>(args, move, angles, head);
}

template <int kOfALane, class T>
void run(const AttentionRows& args, int64_t rows, int64_t heads, cudaStream_t stream) {
  const auto grid = [&](int64_t at_once) {
    return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(ceil_div(heads, kWarps * at_once)));
  };
  if (rows >= kManyRows) return launch_early(attention_rows_kernel<kOfALane, 4, T>, grid(4), kThreads, 0, stream, args);
  launch_early(attention_rows_kernel<kOfALane, 1, T>, grid(1), kThreads, 0, stream, args);
}

}  // namespace

void attention_rows(const AttentionRows& args, cudaStream_t stream) {
  const int64_t rows = args.q.rows + args.moves.count;
  const int64_t heads = args.num_heads > 2 * args.num_kv_heads ? args.num_heads : 2 * args.num_kv_heads;
  if (rows == 0 || heads == 0) return;
  with_num(args.keys.num, args.keys.data, [&](const auto* data) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
    if (args.head_dim <= 64) return run<2, T>(args, rows, heads, stream);
    if (args.head_dim <= 128) return run<4, T>(args, rows, heads, stream);
    static_assert(kWidestHead <= 8 * kWarp);
    run<8, T>(args, rows, heads, stream);
  });
}

}  // namespace lockstep::kernels::cuda
