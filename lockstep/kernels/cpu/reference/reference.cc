// The implementation to read: one loop a dimension, sums in double precision in ascending order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/reference/delta_net.h"
#include "lockstep/kernels/cpu/scalar_ops.h"
#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {
namespace {

using cpu::row_of;
using cpu::to_float;
using cpu::with_elements;

template <class A, class B>
double dot(const A* a, const B* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += static_cast<double>(to_float(a[i])) * static_cast<double>(to_float(b[i]));
  return sum;
}

constexpr double kNoSink = -std::numeric_limits<double>::infinity();

// Scores become weights that sum to one, or with a sink to less: it takes a share and has no value. There is
// always a first token: a row sees itself.
void softmax(std::vector<double>& score, double sink = kNoSink) {
  const double highest = std::max(*std::max_element(score.begin(), score.end()), sink);
  double sum = std::exp(sink - highest);
  for (double& s : score) sum += s = std::exp(s - highest);
  for (double& s : score) s /= sum;
}

void rms_norm(RmsNormArgs& args) {
  cpu::check(args);
  args.first_non_finite_row = -1;
  const int64_t hidden = args.x.shape[1];
  if (hidden == 0) return;
  with_elements(args.weight, [&](const auto* weight) {
    for (int64_t row = 0; row < args.x.shape[0]; ++row) {
      const float* x = row_of<float>(args.x, row);
      float* out = row_of<float>(args.out, row);
      const double mean_square = dot(x, x, hidden) / static_cast<double>(hidden);
      if (!std::isfinite(static_cast<float>(mean_square)) && args.first_non_finite_row < 0) {
        args.first_non_finite_row = row;
      }
      const double scale = 1.0 / std::sqrt(mean_square + static_cast<double>(args.eps));
      for (int64_t i = 0; i < hidden; ++i) out[i] = static_cast<float>(to_float(weight[i]) * (x[i] * scale));
    }
  });
}

void add(const AddArgs& args) {
  cpu::check(args);
  for (int64_t row = 0; row < args.x.shape[0]; ++row) {
    float* x = row_of<float>(args.x, row);
    const float* y = row_of<float>(args.y, row);
    for (int64_t i = 0; i < args.x.shape[1]; ++i) x[i] += y[i];
  }
}

class ReferenceKernels final : public Kernels {
 public:
  std::string_view name() const override { return "reference"; }

  void embed(const EmbedArgs& args) override { cpu::embed(args); }
  void rope(const RopeArgs& args) override { cpu::rope(args); }
  void route(const RouteArgs& args) override { cpu::route(args, route_scratch_); }
  void cache_write(const CacheWriteArgs& args) override { cpu::cache_write(args); }
  void cache_read(const CacheReadArgs& args) override { cpu::cache_read(args); }
  void grouped_ffn(const GroupedFfnArgs& args) override { cpu::grouped_ffn(args, *this); }
  void delta_gates(const DeltaGatesArgs& args) override { cpu::delta_gates(args); }
  void causal_conv(const CausalConvArgs& args) override { cpu::reference_causal_conv(args); }
  void l2_norm(const L2NormArgs& args) override { cpu::reference_l2_norm(args); }
  void gated_delta(const GatedDeltaArgs& args) override { cpu::reference_gated_delta(args); }
  void copy_rows(const CopyRowsArgs& args) override { cpu::copy_rows(args); }
  void sum_rows(const SumRowsArgs& args) override { cpu::sum_rows(args); }
  void sum_add_norm(SumAddNormArgs& args) override {
    cpu::sum_add_norm(args, {.add = kernels::add, .rms_norm = kernels::rms_norm});
  }
  void place_slots(const PlaceSlotsArgs& args) override { cpu::place_slots(args); }
  void pull_weighted(const PullWeightedArgs& args) override { cpu::pull_weighted(args); }

  void rms_norm(RmsNormArgs& args) override { kernels::rms_norm(args); }
  void add(const AddArgs& args) override { kernels::add(args); }
  void linear(const LinearArgs& args) override {
    cpu::check(args);
    const int64_t inner = args.w.num_cols;
    decoded_.resize(static_cast<size_t>(inner));
    for (int64_t o = 0; o < args.w.num_rows; ++o) {
      decode_row(args.w, o, 0, inner, decoded_.data());
      for (int64_t row = 0; row < args.x.shape[0]; ++row)
        row_of<float>(args.out, row)[o] =
            static_cast<float>(dot(row_of<float>(args.x, row), decoded_.data(), inner));
    }
    cpu::add_bias(args);
  }

  void matmul(const MatmulArgs& args) override {
    cpu::check(args);
    const auto inner = static_cast<size_t>(args.w.num_rows), outs = static_cast<size_t>(args.w.num_cols);
    decoded_.resize(inner * outs);
    for (size_t i = 0; i < inner; ++i)
      decode_row(args.w, static_cast<int64_t>(i), 0, args.w.num_cols, decoded_.data() + i * outs);
    for (int64_t row = 0; row < args.x.shape[0]; ++row) {
      const float* x = row_of<float>(args.x, row);
      for (size_t o = 0; o < outs; ++o) {
        double sum = 0;
        for (size_t i = 0; i < inner; ++i)
          sum += static_cast<double>(x[i]) * static_cast<double>(decoded_[i * outs + o]);
        row_of<float>(args.out, row)[o] = static_cast<float>(sum);
      }
    }
  }

  void silu_mul(const SiluMulArgs& args) override {
    cpu::check(args);
    for (int64_t row = 0; row < args.gate.shape[0]; ++row) {
      const float* gate = row_of<float>(args.gate, row);
      const float* up = row_of<float>(args.up, row);
      float* out = row_of<float>(args.out, row);
      const double limit = args.gating.limit;
      for (int64_t i = 0; i < args.gate.shape[1]; ++i) {
        const double g = gate[i] > limit ? limit : gate[i];  // NaN stays
        const double u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        out[i] =
            static_cast<float>(g / (1.0 + std::exp(-args.gating.alpha * g)) * (u + args.gating.up_shift));
      }
    }
  }

  void sigmoid_mul(const SigmoidMulArgs& args) override {
    cpu::check(args);
    const int64_t step = args.gate.shape[1] == 1 ? 0 : 1;
    for (int64_t row = 0; row < args.x.shape[0]; ++row) {
      float* x = row_of<float>(args.x, row);
      const float* gate = row_of<float>(args.gate, row);
      for (int64_t i = 0; i < args.x.shape[1]; ++i)
        x[i] = static_cast<float>(x[i] / (1.0 + std::exp(-static_cast<double>(gate[i * step]))));
    }
  }

  void mla_absorbed(const MlaAbsorbedArgs& args) override {
    cpu::check(args);
    fill_zero(args.out);
    for (const PagedSequence& sequence : args.sequences) {
      for (int64_t j = 0; j < sequence.num_rows; ++j) {
        const int64_t num_tokens = sequence.context - sequence.num_rows + j + 1;
        for (int64_t head = 0; head < args.q.shape[1]; ++head) {
          attend_absorbed(args, sequence, sequence.first_row + j, head, num_tokens);
        }
      }
    }
  }

  void mla_expanded(const MlaExpandedArgs& args) override {
    cpu::check(args);
    const int64_t num_rows = args.q.shape[0];
    const int64_t context = args.kv.shape[0];
    for (int64_t j = 0; j < num_rows; ++j) {
      for (int64_t head = 0; head < args.q.shape[1]; ++head) {
        attend_expanded(args, j, head, context - num_rows + j + 1);
      }
    }
  }

  void gqa(const GqaArgs& args) override {
    cpu::check(args);
    fill_zero(args.out);
    for (const PagedSequence& sequence : args.sequences) {
      for (int64_t j = 0; j < sequence.num_rows; ++j) {
        const int64_t num_tokens = sequence.context - sequence.num_rows + j + 1;
        for (int64_t head = 0; head < args.q.shape[1]; ++head) {
          attend_grouped(args, sequence, sequence.first_row + j, head, num_tokens);
        }
      }
    }
  }

 private:
  static void fill_zero(const TensorView& cube) {
    for (int64_t row = 0; row < cube.shape[0]; ++row) {
      for (int64_t head = 0; head < cube.shape[1]; ++head)
        std::fill_n(head_of(cube, row, head), cube.shape[2], 0.0f);
    }
  }

  static float* head_of(const TensorView& cube, int64_t row, int64_t head) {
    return cube.as<float>() + row * cube.stride[0] + head * cube.stride[1];
  }

  void attend_absorbed(const MlaAbsorbedArgs& args, const PagedSequence& sequence, int64_t row, int64_t head,
                       int64_t num_tokens) {
    const float* q = head_of(args.q, row, head);
    float* out = head_of(args.out, row, head);
    with_elements(args.cache, [&](const auto* cache) {
      const auto key = [&](int64_t token) {
        return cache + cpu::cache_row(sequence, args.page_size, token) * args.cache.stride[0];
      };
      score_.resize(static_cast<size_t>(num_tokens));
      for (int64_t t = 0; t < num_tokens; ++t) {
        score_[static_cast<size_t>(t)] =
            static_cast<double>(args.scale) * dot(q, key(t), args.cache.shape[1]);
      }
      softmax(score_);
      weighted_sum(out, args.latent, key);
    });
  }

  void attend_expanded(const MlaExpandedArgs& args, int64_t row, int64_t head, int64_t num_tokens) {
    const float* q = head_of(args.q, row, head);
    const int64_t rope = args.k_rope.shape[1];
    score_.resize(static_cast<size_t>(num_tokens));
    for (int64_t t = 0; t < num_tokens; ++t) {
      const double product = dot(q, head_of(args.kv, t, head), args.nope) +
                             dot(q + args.nope, row_of<float>(args.k_rope, t), rope);
      score_[static_cast<size_t>(t)] = static_cast<double>(args.scale) * product;
    }
    softmax(score_);
    weighted_sum(head_of(args.out, row, head), args.out.shape[2],
                 [&](int64_t token) { return head_of(args.kv, token, head) + args.nope; });
  }

  void attend_grouped(const GqaArgs& args, const PagedSequence& sequence, int64_t row, int64_t head,
                      int64_t num_tokens) {
    const float* q = head_of(args.q, row, head);
    const int64_t head_dim = args.q.shape[2];
    const int64_t column = (args.first_in_group + head) / args.group * head_dim;
    const int64_t first = args.window == 0 ? 0 : std::max<int64_t>(0, num_tokens - args.window);
    const auto at = [&](const TensorView& cache, int64_t token) {
      return cpu::cache_row(sequence, args.page_size, token) * cache.stride[0] + column;
    };
    score_.resize(static_cast<size_t>(num_tokens - first));
    with_elements(args.k, [&](const auto* k) {
      for (int64_t t = first; t < num_tokens; ++t)
        score_[static_cast<size_t>(t - first)] =
            static_cast<double>(args.scale) * dot(q, k + at(args.k, t), head_dim);
    });
    double sink = kNoSink;
    if (!args.sinks.empty())
      with_elements(args.sinks,
                    [&](const auto* sinks) { sink = static_cast<double>(to_float(sinks[head])); });
    softmax(score_, sink);
    with_elements(args.v, [&](const auto* v) {
      weighted_sum(head_of(args.out, row, head), head_dim,
                   [&](int64_t token) { return v + at(args.v, first + token); });
    });
  }

  // out = Σ_t score_[t] · value(t)
  template <class ValueOfToken>
  void weighted_sum(float* out, int64_t width, ValueOfToken&& value) {
    sum_.assign(static_cast<size_t>(width), 0.0);
    for (size_t t = 0; t < score_.size(); ++t) {
      const auto* v = value(static_cast<int64_t>(t));
      for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += score_[t] * static_cast<double>(to_float(v[i]));
    }
    for (size_t i = 0; i < sum_.size(); ++i) out[i] = static_cast<float>(sum_[i]);
  }

  cpu::RouteScratch route_scratch_;
  std::vector<double> score_;   // [tokens] of one row and head
  std::vector<double> sum_;     // [width of a value]
  std::vector<float> decoded_;  // rows of a weight
};

}  // namespace

std::unique_ptr<Kernels> make_reference_kernels() { return std::make_unique<ReferenceKernels>(); }

}  // namespace lockstep::kernels
