// The convolution and the recurrence of a gated DeltaNet layer. The recurrence goes over a state by blocks of
// columns whose sums stay in registers: a decode step reads a state from memory once and writes it once, and
// the rows of a prompt find it in a cache.
#include "lockstep/kernels/cpu/conv_window.h"
#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/vector/targets.h"
#include "lockstep/kernels/cpu/vector/vector_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/cpu/vector/delta_net.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lockstep/kernels/cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

// out = Σ_j weight_j ⊙ x_(t - taps + 1 + j), without the activation.
void convolve(const CausalConvArgs& args, const PagedSequence& sequence) {
  const auto channels = static_cast<size_t>(args.x.shape[1]);
  const int64_t taps = args.weight.shape[0];
  const ConvWindow window(args, sequence);
  for (int64_t t = 0; t < sequence.num_rows; ++t) {
    float* out = row_of<float>(args.out, sequence.first_row + t);
    for (int64_t tap = 0; tap < taps; ++tap) {
      const float* weight = row_of<float>(args.weight, tap);
      const float* x = window.row(t - taps + 1 + tap);
      for_each_vector(channels, [&](size_t i, size_t n) HWY_ATTR {
        const V sum = load_up_to(out + i, n);  // zero at first
        store_up_to(hn::MulAdd(load_up_to(weight + i, n), load_up_to(x + i, n), sum), out + i, n);
      });
    }
  }
  window.advance();
}

// One sequence and value head. Rows are a stride apart in what they come from.
struct DeltaHead {
  const GatedDeltaArgs& args;
  int64_t first_row, num_rows, head, key_head;
  float* state;  // [key_dim, value_dim]

  const float* key(const TensorView& cube, int64_t t) const {
    return row_of<float>(cube, first_row + t) + key_head * cube.stride[1];
  }
  float* value(const TensorView& cube, int64_t t) const {
    return row_of<float>(cube, first_row + t) + head * cube.stride[1];
  }
  float gate(const TensorView& matrix, int64_t t) const { return row_of<float>(matrix, first_row + t)[head]; }
};

// Some neighbouring columns of a state; `last` of the last vector's lanes are there. Each column is one chain
// of operations in ascending order of keys and rows: its bits do not depend on how columns are put together,
// nor on how rows are cut into steps.
template <size_t kVectors>
class DeltaColumns {
 public:
  HWY_INLINE DeltaColumns(const DeltaHead& head, size_t column, size_t last)
      : head_(head),
        key_dim_(head.args.q.shape[2]),
        value_dim_(head.args.v.shape[2]),
        column_(column),
        last_(last) {}

  HWY_INLINE void run() const {
    V had[kVectors];  // Sᵀ k of the state before the row
    recall(had);
    for (int64_t t = 0; t < head_.num_rows; ++t) {
      const V decay = hn::Set(Floats(), head_.gate(head_.args.decay, t));
      const V beta = hn::Set(Floats(), head_.gate(head_.args.beta, t));
      V correction[kVectors];
      const float* v = head_.value(head_.args.v, t) + column_;
      for (size_t i = 0; i < kVectors; ++i)
        correction[i] = hn::Mul(beta, hn::NegMulAdd(decay, had[i], load_up_to(v + i * kLanes, lanes_of(i))));
      advance(t, decay, correction, had);
    }
  }

 private:
  HWY_INLINE size_t lanes_of(size_t vector) const { return vector + 1 < kVectors ? kLanes : last_; }

  HWY_INLINE void recall(V (&had)[kVectors]) const {
    for (size_t i = 0; i < kVectors; ++i) had[i] = hn::Zero(Floats());
    const float* k = head_.key(head_.args.k, 0);
    const float* state = head_.state + column_;
    for (int64_t key = 0; key < key_dim_; ++key, state += value_dim_) {
      const V by = hn::Set(Floats(), k[key]);
      for (size_t i = 0; i < kVectors; ++i)
        had[i] = hn::MulAdd(by, load_up_to(state + i * kLanes, lanes_of(i)), had[i]);
    }
  }

  // S = decay · S + k ⊗ correction and out = Sᵀ q; on the same way through the state, Sᵀ k of the next row.
  HWY_INLINE void advance(int64_t t, V decay, const V (&correction)[kVectors], V (&had)[kVectors]) const {
    const float* q = head_.key(head_.args.q, t);
    const float* k = head_.key(head_.args.k, t);
    const float* next = head_.key(head_.args.k, t + 1 < head_.num_rows ? t + 1 : t);
    V read[kVectors];
    for (size_t i = 0; i < kVectors; ++i) read[i] = had[i] = hn::Zero(Floats());
    float* state = head_.state + column_;
    for (int64_t key = 0; key < key_dim_; ++key, state += value_dim_) {
      const V write_by = hn::Set(Floats(), k[key]);
      const V read_by = hn::Set(Floats(), q[key]);
      const V next_by = hn::Set(Floats(), next[key]);
      for (size_t i = 0; i < kVectors; ++i) {
        const V before = load_up_to(state + i * kLanes, lanes_of(i));
        const V now = hn::MulAdd(write_by, correction[i], hn::Mul(decay, before));
        store_up_to(now, state + i * kLanes, lanes_of(i));
        read[i] = hn::MulAdd(read_by, now, read[i]);
        had[i] = hn::MulAdd(next_by, now, had[i]);
      }
    }
    float* out = head_.value(head_.args.out, t) + column_;
    for (size_t i = 0; i < kVectors; ++i) store_up_to(read[i], out + i * kLanes, lanes_of(i));
  }

  const DeltaHead& head_;
  const int64_t key_dim_, value_dim_;
  const size_t column_, last_;
};

void run_head(const DeltaHead& head) {
  const auto width = static_cast<size_t>(head.args.v.shape[2]);
  size_t column = 0;
#if HWY_TARGET == HWY_AVX3  // has registers for three sums of eight vectors
  for (; column + 8 * kLanes <= width; column += 8 * kLanes) DeltaColumns<8>(head, column, kLanes).run();
#endif
  for (; column + 4 * kLanes <= width; column += 4 * kLanes) DeltaColumns<4>(head, column, kLanes).run();
  for (; column + kLanes <= width; column += kLanes) DeltaColumns<1>(head, column, kLanes).run();
  if (column < width) DeltaColumns<1>(head, column, width - column).run();
}

void gated_delta(const GatedDeltaArgs& args, const PagedSequence& sequence, int64_t head) {
  float* state = row_of<float>(args.state, sequence.slot) + head * args.state.stride[1];
  if (sequence.starts()) std::fill_n(state, args.q.shape[2] * args.v.shape[2], 0.0f);
  run_head({.args = args,
            .first_row = sequence.first_row,
            .num_rows = sequence.num_rows,
            .head = head,
            .key_head = (args.first_in_group + head) / args.group,
            .state = state});
}

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(convolve);
HWY_EXPORT(gated_delta);

void vector_causal_conv(const CausalConvArgs& args) {
  for (int64_t row = 0; row < args.out.shape[0]; ++row)
    std::fill_n(row_of<float>(args.out, row), args.out.shape[1], 0.0f);
  for (const PagedSequence& sequence : args.sequences) {
    if (sequence.num_rows == 0) continue;
    HWY_DYNAMIC_DISPATCH(convolve)(args, sequence);
    const TensorView out = args.out.row_range(sequence.first_row, sequence.num_rows);
    vector_silu(out);
  }
}

void vector_gated_delta(const GatedDeltaArgs& args, const PagedSequence& sequence, int64_t head) {
  if (sequence.num_rows > 0) HWY_DYNAMIC_DISPATCH(gated_delta)(args, sequence, head);
}

}  // namespace lockstep::kernels::cpu
#endif
