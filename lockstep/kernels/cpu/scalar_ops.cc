#include "lockstep/kernels/cpu/scalar_ops.h"

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cpu/elements.h"

namespace lockstep::kernels::cpu {
namespace {

void rotate(float* first, float* second, float cos, float sin) {
  const float a = *first;
  const float b = *second;
  *first = a * cos - b * sin;
  *second = b * cos + a * sin;
}

void rotate_head(float* x, const float* cos, const float* sin, int num_pairs, RopePairing pairing) {
  if (pairing == RopePairing::kInterleaved) {
    for (int i = 0; i < num_pairs; ++i) rotate(x + 2 * i, x + 2 * i + 1, cos[i], sin[i]);
  } else {
    for (int i = 0; i < num_pairs; ++i) rotate(x + i, x + i + num_pairs, cos[i], sin[i]);
  }
}

void store(float* to, float value) { *to = value; }
void store(BF16* to, float value) { *to = to_bf16(value); }

template <class T>
void write_rows(const CacheWriteArgs& args, const PagedSequence& sequence, T* cache) {
  const int64_t width = args.x.shape[1];
  const int64_t first_token = int64_t{sequence.context} - sequence.num_rows;
  for (int64_t j = 0; j < sequence.num_rows; ++j) {
    const float* from = row_of<float>(args.x, sequence.first_row + j);
    T* to = cache + cache_row(sequence, args.page_size, first_token + j) * args.cache.stride[0];
    for (int64_t i = 0; i < width; ++i) store(to + i, from[i]);
  }
}

}  // namespace

void embed(const EmbedArgs& args) {
  check(args);
  const int64_t vocab = args.table.num_rows, hidden = args.table.num_cols;
  for (size_t row = 0; row < args.token_ids.size(); ++row) {
    float* out = row_of<float>(args.out, static_cast<int64_t>(row));
    const int64_t id = args.token_ids[row];
    if (id < 0 || id >= vocab) {
      std::fill_n(out, hidden, 0.0f);
    } else {
      decode_row(args.table, id, 0, hidden, out);
    }
  }
}

void add_bias(const LinearArgs& args) {
  if (args.bias.empty()) return;
  with_elements(args.bias, [&](const auto* bias) {
    for (int64_t row = 0; row < args.out.shape[0]; ++row) {
      float* out = row_of<float>(args.out, row);
      for (int64_t o = 0; o < args.out.shape[1]; ++o) out[o] += to_float(bias[o]);
    }
  });
}

void rope(const RopeArgs& args) {
  check(args);
  for (size_t row = 0; row < args.positions.size(); ++row) {
    float* x = row_of<float>(args.x, static_cast<int64_t>(row)) + args.offset;
    const float* cos = row_of<float>(args.cos, args.positions[row]);
    const float* sin = row_of<float>(args.sin, args.positions[row]);
    for (int head = 0; head < args.num_heads; ++head) {
      rotate_head(x + int64_t{head} * args.head_stride, cos, sin, args.dim / 2, args.pairing);
    }
  }
}

void cache_write(const CacheWriteArgs& args) {
  check(args);
  for (const PagedSequence& sequence : args.sequences) {
    if (args.cache.dtype == DType::kBF16) {
      write_rows(args, sequence, args.cache.as<BF16>());
    } else {
      write_rows(args, sequence, args.cache.as<float>());
    }
  }
}

void cache_read(const CacheReadArgs& args) {
  check(args);
  with_elements(args.cache, [&](const auto* cache) {
    for (int64_t token = 0; token < args.sequence.context; ++token) {
      const auto* from = cache + cache_row(args.sequence, args.page_size, token) * args.cache.stride[0];
      float* to = row_of<float>(args.out, token);
      for (int64_t i = 0; i < args.out.shape[1]; ++i) to[i] = to_float(from[i]);
    }
  });
}

void check_expert_start(const GroupedFfnArgs& args) {
  const auto* start = args.expert_start.as<int32_t>();
  LOCKSTEP_CHECK_EQ(start[0], 0);
  LOCKSTEP_CHECK_EQ(int64_t{start[args.gate.size()]}, args.x.shape[0]);
  for (size_t expert = 0; expert < args.gate.size(); ++expert)
    LOCKSTEP_CHECK_LE(start[expert], start[expert + 1]);
}

void grouped_ffn(const GroupedFfnArgs& args, Kernels& kernels) {
  check(args);
  check_expert_start(args);
  const auto* start = args.expert_start.as<int32_t>();
  for (size_t expert = 0; expert < args.gate.size(); ++expert) {
    const int64_t begin = start[expert];
    const int64_t count = start[expert + 1] - begin;
    if (count == 0) continue;  // an expert without rows reads none of its weights
    const int64_t inter = args.gate[expert].num_rows;
    const TensorView x = args.x.row_range(begin, count);
    const TensorView gate = args.scratch.row_range(begin, count).col_range(0, inter);
    const TensorView up = args.scratch.row_range(begin, count).col_range(inter, inter);
    const auto bias = [&](std::span<const TensorView> of) { return of.empty() ? TensorView{} : of[expert]; };
    kernels.linear({.x = x, .w = args.gate[expert], .out = gate, .bias = bias(args.gate_bias)});
    kernels.linear({.x = x, .w = args.up[expert], .out = up, .bias = bias(args.up_bias)});
    kernels.silu_mul({.gate = gate, .up = up, .out = gate, .gating = args.gating});
    kernels.linear({.x = gate,
                    .w = args.down[expert],
                    .out = args.y.row_range(begin, count),
                    .bias = bias(args.down_bias)});
  }
}

// The decay multiplies a state thousands of times over, so it is worked out in double precision.
void delta_gates(const DeltaGatesArgs& args) {
  check(args);
  const auto number = [](const TensorView& vector, int64_t at) {
    return static_cast<double>(vector.dtype == DType::kBF16 ? to_float(vector.as<BF16>()[at])
                                                            : vector.as<float>()[at]);
  };
  for (int64_t head = 0; head < args.a.shape[1]; ++head) {
    const double rate = std::exp(number(args.a_log, head)), bias = number(args.dt_bias, head);
    for (int64_t row = 0; row < args.a.shape[0]; ++row) {
      const double a = static_cast<double>(row_of<float>(args.a, row)[head]) + bias;
      const double b = row_of<float>(args.b, row)[head];
      const double softplus = a > 40 ? a : std::log1p(std::exp(a));  // the exponential must not overflow
      row_of<float>(args.decay, row)[head] = static_cast<float>(std::exp(-rate * softplus));
      row_of<float>(args.beta, row)[head] = static_cast<float>(1 / (1 + std::exp(-b)));
    }
  }
}

}  // namespace lockstep::kernels::cpu
