// Ops that go over a row once or twice: norm, addition, activation, the pieces of a softmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/vector/targets.h"
#include "lockstep/kernels/cpu/vector/vector_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/cpu/vector/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "lockstep/kernels/cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

// e^x with a relative error below 2e-7 (Highway's Exp: one unit in the last place), 0 far below, infinity
// above, and NaN for NaN, which Highway's would turn into 0.
HWY_INLINE V exp_of(V x) {
  const Floats d;
  const V bounded = hn::Min(x, hn::Set(d, 104.0f));  // above, Exp's integers overflow
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, bounded));
}

HWY_INLINE float exp_of(float x) { return hn::GetLane(exp_of(hn::Set(Floats(), x))); }

float sum_of_squares(const float* x, size_t count) {
  const Floats d;
  V acc[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (size_t v = 0; v < 4; ++v) {
      const V value = load(x + i + v * kLanes);
      acc[v] = hn::MulAdd(value, value, acc[v]);
    }
  }
  for_each_vector(count - i, [&](size_t at, size_t n) HWY_ATTR {
    const V value = load_up_to(x + i + at, n);
    acc[0] = hn::MulAdd(value, value, acc[0]);
  });
  return sum_of_lanes(hn::Add(hn::Add(acc[0], acc[1]), hn::Add(acc[2], acc[3])));
}

void rms_norm(RmsNormArgs& args) {
  args.first_non_finite_row = -1;
  const auto hidden = static_cast<size_t>(args.x.shape[1]);
  if (hidden == 0) return;
  with_elements(args.weight, [&](const auto* weight) HWY_ATTR {
    for (int64_t row = 0; row < args.x.shape[0]; ++row) {
      const float* x = row_of<float>(args.x, row);
      float* out = row_of<float>(args.out, row);
      const float mean_square = sum_of_squares(x, hidden) / static_cast<float>(hidden);
      if (!std::isfinite(mean_square) && args.first_non_finite_row < 0) args.first_non_finite_row = row;
      const V scale = hn::Set(Floats(), 1.0f / std::sqrt(mean_square + args.eps));
      for_each_vector(hidden, [&](size_t i, size_t n) HWY_ATTR {
        const V normed = hn::Mul(load_up_to(x + i, n), scale);
        store_up_to(hn::Mul(load_up_to(weight + i, n), normed), out + i, n);
      });
    }
  });
}

void l2_norm(const L2NormArgs& args) {
  const auto width = static_cast<size_t>(args.x.shape[2]);
  for (int64_t row = 0; row < args.x.shape[0]; ++row) {
    for (int64_t head = 0; head < args.x.shape[1]; ++head) {
      float* x = row_of<float>(args.x, row) + head * args.x.stride[1];
      const V by = hn::Set(Floats(), args.scale / std::sqrt(sum_of_squares(x, width) + args.eps));
      for_each_vector(width, [&](size_t i, size_t n)
                                 HWY_ATTR { store_up_to(hn::Mul(load_up_to(x + i, n), by), x + i, n); });
    }
  }
}

void add(const AddArgs& args) {
  const auto hidden = static_cast<size_t>(args.x.shape[1]);
  for (int64_t row = 0; row < args.x.shape[0]; ++row) {
    float* x = row_of<float>(args.x, row);
    const float* y = row_of<float>(args.y, row);
    for_each_vector(hidden, [&](size_t i, size_t n) HWY_ATTR {
      store_up_to(hn::Add(load_up_to(x + i, n), load_up_to(y + i, n)), x + i, n);
    });
  }
}

HWY_INLINE V silu_of(V x) { return hn::Div(x, hn::Add(hn::Set(Floats(), 1.0f), exp_of(hn::Neg(x)))); }

void silu(const TensorView& matrix) {
  for (int64_t row = 0; row < matrix.shape[0]; ++row) {
    float* x = row_of<float>(matrix, row);
    for_each_vector(static_cast<size_t>(matrix.shape[1]), [&](size_t i, size_t n) HWY_ATTR {
      store_up_to(silu_of(load_up_to(x + i, n)), x + i, n);
    });
  }
}

void silu_mul(const SiluMulArgs& args) {
  const auto inter = static_cast<size_t>(args.gate.shape[1]);
  const Floats d;
  const V one = hn::Set(d, 1.0f), alpha = hn::Set(d, args.gating.alpha);
  const V limit = hn::Set(d, args.gating.limit), shift = hn::Set(d, args.gating.up_shift);
  const auto at_most = [&](V x) HWY_ATTR { return hn::IfThenElse(hn::Gt(x, limit), limit, x); };  // keeps NaN
  for (int64_t row = 0; row < args.gate.shape[0]; ++row) {
    const float* gate = row_of<float>(args.gate, row);
    const float* up = row_of<float>(args.up, row);
    float* out = row_of<float>(args.out, row);
    for_each_vector(inter, [&](size_t i, size_t n) HWY_ATTR {
      const V g = at_most(load_up_to(gate + i, n));
      const V u = hn::Neg(at_most(hn::Neg(at_most(load_up_to(up + i, n)))));
      const V gated = hn::Div(g, hn::Add(one, exp_of(hn::Neg(hn::Mul(alpha, g)))));
      store_up_to(hn::Mul(gated, hn::Add(u, shift)), out + i, n);
    });
  }
}

void sigmoid_mul(const SigmoidMulArgs& args) {
  const auto width = static_cast<size_t>(args.x.shape[1]);
  const bool one_a_row = args.gate.shape[1] == 1;
  const V one = hn::Set(Floats(), 1.0f);
  for (int64_t row = 0; row < args.x.shape[0]; ++row) {
    float* x = row_of<float>(args.x, row);
    const float* gate = row_of<float>(args.gate, row);
    for_each_vector(width, [&](size_t i, size_t n) HWY_ATTR {
      const V g = one_a_row ? hn::Set(Floats(), gate[0]) : load_up_to(gate + i, n);
      const V divisor = hn::Add(one, exp_of(hn::Neg(g)));
      store_up_to(hn::Div(load_up_to(x + i, n), divisor), x + i, n);
    });
  }
}

// In the order of the choices, each a product and a sum that are rounded apart, as the reference has them.
void pull_weighted(const PullWeightedArgs& args) {
  const auto width = static_cast<size_t>(args.out.cols());
  for (int64_t row = 0; row < args.out.rows(); ++row) {
    float* sum = row_of<float>(args.out, row);
    std::fill_n(sum, width, 0.0f);
    for (int64_t k = 0; k < args.weight.cols(); ++k) {
      const V weight = hn::Set(Floats(), row_of<float>(args.weight, row)[k]);
      for (const PullWeightedArgs::Source& source : args.sources) {
        const int32_t slot = row_of<int32_t>(source.slot_of, row)[k];
        if (slot < 0) continue;
        const float* y = row_of<float>(source.y, slot);
        for_each_vector(width, [&](size_t i, size_t n) HWY_ATTR {
          const V more = hn::Mul(weight, load_up_to(y + i, n));
          store_up_to(hn::Add(load_up_to(sum + i, n), more), sum + i, n);
        });
      }
    }
  }
}

// The largest score. A NaN may be passed over here: it reaches the sum of the softmax in any case.
float highest_of(const float* score, size_t count) {
  const Floats d;
  const V lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  V highest = lowest;
  for_each_vector(count, [&](size_t i, size_t n) HWY_ATTR {
    const V values = hn::IfThenElse(hn::FirstN(d, n), load_up_to(score + i, n), lowest);
    highest = hn::Max(values, highest);
  });
  return hn::GetLane(hn::MaxOfLanes(d, highest));
}

float softmax_block(float* score, int64_t count, float scale, SoftmaxState& state) {
  const Floats d;
  const V by = hn::Set(d, scale);
  const auto n_scores = static_cast<size_t>(count);
  for_each_vector(n_scores, [&](size_t i, size_t n) HWY_ATTR {
    store_up_to(hn::Mul(load_up_to(score + i, n), by), score + i, n);
  });
  const float highest = std::max(state.highest, highest_of(score, n_scores));
  const float factor = state.sum == 0 ? 0.0f : exp_of(state.highest - highest);
  const V shift = hn::Set(d, highest);
  V sum = hn::Zero(d);
  for_each_vector(n_scores, [&](size_t i, size_t n) HWY_ATTR {
    const V weight = exp_of(hn::Sub(load_up_to(score + i, n), shift));
    store_up_to(weight, score + i, n);
    sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, n), weight));
  });
  state = {highest,
           hn::GetLane(hn::MulAdd(hn::Set(d, state.sum), hn::Set(d, factor), hn::Set(d, sum_of_lanes(sum))))};
  return factor;
}

void scale_add(float* acc, float factor, const float* x, int64_t count) {
  const V by = hn::Set(Floats(), factor);
  for_each_vector(static_cast<size_t>(count), [&](size_t i, size_t n) HWY_ATTR {
    store_up_to(hn::MulAdd(load_up_to(acc + i, n), by, load_up_to(x + i, n)), acc + i, n);
  });
}

void divide(float* acc, float divisor, int64_t count) {
  const V by = hn::Set(Floats(), divisor);
  for_each_vector(static_cast<size_t>(count), [&](size_t i, size_t n) HWY_ATTR {
    store_up_to(hn::Div(load_up_to(acc + i, n), by), acc + i, n);
  });
}

int64_t target() { return HWY_TARGET; }

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(rms_norm);
HWY_EXPORT(l2_norm);
HWY_EXPORT(add);
HWY_EXPORT(silu);
HWY_EXPORT(silu_mul);
HWY_EXPORT(sigmoid_mul);
HWY_EXPORT(pull_weighted);
HWY_EXPORT(softmax_block);
HWY_EXPORT(scale_add);
HWY_EXPORT(divide);
HWY_EXPORT(target);

std::string_view vector_target() {
  switch (HWY_DYNAMIC_DISPATCH(target)()) {
    case HWY_AVX3:
      return "avx512";
    case HWY_AVX2:
      return "avx2";
    case HWY_SSE4:
      return "sse4";
    case HWY_NEON:
      return "neon";
    default:
      return "portable";
  }
}

void vector_rms_norm(RmsNormArgs& args) { HWY_DYNAMIC_DISPATCH(rms_norm)(args); }
void vector_l2_norm(const L2NormArgs& args) { HWY_DYNAMIC_DISPATCH(l2_norm)(args); }
void vector_add(const AddArgs& args) { HWY_DYNAMIC_DISPATCH(add)(args); }
void vector_silu(const TensorView& x) { HWY_DYNAMIC_DISPATCH(silu)(x); }
void vector_silu_mul(const SiluMulArgs& args) { HWY_DYNAMIC_DISPATCH(silu_mul)(args); }
void vector_sigmoid_mul(const SigmoidMulArgs& args) { HWY_DYNAMIC_DISPATCH(sigmoid_mul)(args); }
void vector_pull_weighted(const PullWeightedArgs& args) { HWY_DYNAMIC_DISPATCH(pull_weighted)(args); }
float vector_softmax_block(float* score, int64_t count, float scale, SoftmaxState& state) {
  return HWY_DYNAMIC_DISPATCH(softmax_block)(score, count, scale, state);
}
void vector_scale_add(float* acc, float factor, const float* x, int64_t count) {
  HWY_DYNAMIC_DISPATCH(scale_add)(acc, factor, x, count);
}
void vector_divide(float* acc, float divisor, int64_t count) {
  HWY_DYNAMIC_DISPATCH(divide)(acc, divisor, count);
}

}  // namespace lockstep::kernels::cpu
#endif
