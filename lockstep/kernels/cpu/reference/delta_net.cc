#include "lockstep/kernels/cpu/reference/delta_net.h"

#include <cmath>
#include <vector>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cpu/conv_window.h"

namespace lockstep::kernels::cpu {
namespace {

float* head_of(const TensorView& cube, int64_t row, int64_t head) {
  return cube.as<float>() + row * cube.stride[0] + head * cube.stride[1];
}

// One row: the state decays, is asked for what it has at k, is corrected towards v, and is read at q.
void step_of(const GatedDeltaArgs& args, int64_t row, int64_t head, float* state) {
  const int64_t key_head = (args.first_in_group + head) / args.group;
  const int64_t key_dim = args.q.shape[2], value_dim = args.v.shape[2];
  const float* q = head_of(args.q, row, key_head);
  const float* k = head_of(args.k, row, key_head);
  const float* v = head_of(args.v, row, head);
  const double decay = static_cast<double>(row_of<float>(args.decay, row)[head]);
  const double beta = static_cast<double>(row_of<float>(args.beta, row)[head]);
  std::vector<double> column(static_cast<size_t>(key_dim));
  for (int64_t j = 0; j < value_dim; ++j) {
    double had = 0, read = 0;
    for (int64_t i = 0; i < key_dim; ++i) {
      column[static_cast<size_t>(i)] = decay * static_cast<double>(state[i * value_dim + j]);
      had += column[static_cast<size_t>(i)] * static_cast<double>(k[i]);
    }
    const double correction = beta * (static_cast<double>(v[j]) - had);
    for (int64_t i = 0; i < key_dim; ++i) {
      const double now = column[static_cast<size_t>(i)] + static_cast<double>(k[i]) * correction;
      read += now * static_cast<double>(q[i]);
      state[i * value_dim + j] = static_cast<float>(now);
    }
    head_of(args.out, row, head)[j] = static_cast<float>(read);
  }
}

}  // namespace

void reference_causal_conv(const CausalConvArgs& args) {
  check(args);
  const int64_t taps = args.weight.shape[0], channels = args.x.shape[1];
  for (int64_t row = 0; row < args.out.shape[0]; ++row)
    std::fill_n(row_of<float>(args.out, row), channels, 0.0f);
  for (const PagedSequence& sequence : args.sequences) {
    const ConvWindow window(args, sequence);
    for (int64_t t = 0; t < sequence.num_rows; ++t) {
      float* out = row_of<float>(args.out, sequence.first_row + t);
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t tap = 0; tap < taps; ++tap)
          sum += static_cast<double>(row_of<float>(args.weight, tap)[c]) *
                 static_cast<double>(window.row(t - taps + 1 + tap)[c]);
        out[c] = static_cast<float>(sum / (1 + std::exp(-sum)));
      }
    }
    window.advance();
  }
}

void reference_l2_norm(const L2NormArgs& args) {
  check(args);
  for (int64_t row = 0; row < args.x.shape[0]; ++row) {
    for (int64_t head = 0; head < args.x.shape[1]; ++head) {
      float* x = head_of(args.x, row, head);
      double sum = static_cast<double>(args.eps);
      for (int64_t i = 0; i < args.x.shape[2]; ++i)
        sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      const double by = static_cast<double>(args.scale) / std::sqrt(sum);
      for (int64_t i = 0; i < args.x.shape[2]; ++i) x[i] = static_cast<float>(static_cast<double>(x[i]) * by);
    }
  }
}

void reference_gated_delta(const GatedDeltaArgs& args) {
  check(args);
  const int64_t heads = args.v.shape[1], value_dim = args.v.shape[2];
  for (int64_t row = 0; row < args.out.shape[0]; ++row) {
    for (int64_t head = 0; head < heads; ++head) std::fill_n(head_of(args.out, row, head), value_dim, 0.0f);
  }
  for (const PagedSequence& sequence : args.sequences) {
    for (int64_t head = 0; head < heads; ++head) {
      float* state = head_of(args.state, sequence.slot, head);
      if (sequence.starts()) std::fill_n(state, args.q.shape[2] * value_dim, 0.0f);
      for (int64_t t = 0; t < sequence.num_rows; ++t) step_of(args, sequence.first_row + t, head, state);
    }
  }
}

}  // namespace lockstep::kernels::cpu
