// The ops of gated DeltaNet. The recurrence is compared with its chunked form (Yang, Kautz and Hatamizadeh
// 2024, section 3.3), which solves a triangular system for every 64 rows instead of taking one row after the
// other.
#include <algorithm>
#include <limits>

#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"

namespace lockstep::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

PagedSequence sequence(int32_t slot, int32_t first_row, int32_t num_rows, int32_t context) {
  return {.first_row = first_row, .num_rows = num_rows, .context = context, .slot = slot};
}

// What `slots` sequences keep. All poison at first: a sequence that starts may not read it.
class State {
 public:
  State(int64_t slots, int64_t outer, int64_t inner)
      : outer_(outer), inner_(inner), kept_(slots, outer * inner) {}
  TensorView rows() { return view_of(kept_.view().as<float>(), {kept_.rows(), outer_, inner_}); }
  TensorView heads(int64_t heads) {
    return view_of(kept_.view().as<float>(), {kept_.rows(), heads, outer_ / heads, inner_});
  }
  float& at(int64_t slot, int64_t place) { return kept_.at(slot, place); }
  bool slot_equals(int64_t slot, const State& other, int64_t other_slot) const {
    return kept_.row_equals(slot, other.kept_, other_slot);
  }

 private:
  int64_t outer_, inner_;
  Matrix kept_;
};

// Ways to cut 150 rows into steps.
const std::vector<std::vector<int32_t>> kCuts = {
    {1, 63, 64, 22}, {65, 1, 1, 80, 3}, {2, 2, 146}, std::vector<int32_t>(150, 1)};

class CausalConv : public KernelsTest {
 protected:
  void convolve(Matrix& x, Matrix& weight, const std::vector<PagedSequence>& sequences, State& state,
                Matrix& out) {
    kernels().causal_conv({.x = x.view(),
                           .weight = weight.view(),
                           .sequences = sequences,
                           .state = state.rows(),
                           .out = out.view()});
  }
};

// By hand: the sums are 1, 2 + 10, 3 + 20 + 100; silu(1) = 0.7310586 and silu(x) = x for large x.
TEST_P(CausalConv, WorkedExample) {
  Matrix x = Matrix::of({{1}, {2}, {3}}), weight = Matrix::of({{100}, {10}, {1}}), out(3, 1);
  State state(1, 2, 1);
  convolve(x, weight, {sequence(0, 0, 3, 3)}, state, out);
  EXPECT_FLOAT_EQ(out.at(0, 0), 0.7310586f);
  EXPECT_FLOAT_EQ(out.at(1, 0), 11.999926f);
  EXPECT_FLOAT_EQ(out.at(2, 0), 123);
  EXPECT_EQ(state.at(0, 0), 2);
  EXPECT_EQ(state.at(0, 1), 3);
}

TEST_P(CausalConv, EveryRowSeesTheRowsBeforeIt) {
  for (const int64_t taps : {1, 2, 4, 7}) {
    for (const int64_t channels : {1, 7, 33, 64}) {
      Matrix x = Matrix::drawn(1, 30, channels, 3), weight = Matrix::drawn(2, taps, channels),
             out(30, channels, 2);
      for (int64_t c = 0; c < channels; ++c) x.at(0, c) = x.at(29, c) = std::nanf("");  // padding
      State state(3, taps - 1, channels);
      convolve(x, weight, {sequence(2, 6, 23, 23), sequence(0, 1, 5, 5)}, state, out);
      out.expect_written_exactly();
      for (int64_t row = 0; row < 30; ++row) {
        const bool is_padding = row == 0 || row == 29;
        const int64_t first = row >= 6 ? 6 : 1;
        for (int64_t c = 0; c < channels; ++c) {
          double sum = 0, size = 0;
          for (int64_t j = 0; j < taps && row - j >= first && !is_padding; ++j) {
            const double term =
                static_cast<double>(weight.at(taps - 1 - j, c)) * static_cast<double>(x.at(row - j, c));
            sum += term;
            size += std::abs(term);
          }
          const double want = sum / (1 + std::exp(-sum));
          ASSERT_NEAR(out.at(row, c), want, size * 1e-6) << "row " << row << " channel " << c;
        }
      }
    }
  }
}

TEST_P(CausalConv, StepsSlotsAndNeighboursLeaveNoTrace) {
  constexpr int64_t kChannels = 35;
  Matrix x = Matrix::drawn(3, 150, kChannels), weight = Matrix::drawn(4, 4, kChannels), whole(150, kChannels);
  State state(1, 3, kChannels);
  convolve(x, weight, {sequence(0, 0, 150, 150)}, state, whole);
  for (const auto& cut : kCuts) {
    State other(5, 3, kChannels);
    int32_t done = 0;
    for (const int32_t count : cut) {
      Matrix now = Matrix::drawn(5, count + 2, kChannels), out(count + 2, kChannels);
      for (int64_t r = 0; r < count; ++r)
        for (int64_t c = 0; c < kChannels; ++c) now.at(r + 2, c) = x.at(done + r, c);
      convolve(now, weight, {sequence(1, 0, 2, 2), sequence(4, 2, count, done + count), sequence(0, 0, 0, 9)},
               other, out);
      for (int32_t r = 0; r < count; ++r)
        ASSERT_TRUE(out.row_equals(r + 2, whole, done + r)) << "token " << done + r;
      done += count;
    }
    EXPECT_TRUE(other.slot_equals(4, state, 0));
  }
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(CausalConv);

class DeltaRows : public KernelsTest {};

// By hand: 3² + 4² = 25.
TEST_P(DeltaRows, L2NormWorkedExample) {
  Matrix x = Matrix::of({{3, 4, 0, 0}});
  kernels().l2_norm({.x = x.cube(2), .eps = 0.25f, .scale = 2});
  EXPECT_FLOAT_EQ(x.at(0, 0), 1.1940447f);  // 6 / √25.25
  EXPECT_FLOAT_EQ(x.at(0, 1), 1.5920595f);
  EXPECT_EQ(x.at(0, 2), 0);
}

TEST_P(DeltaRows, L2NormOfColumnsOfWiderRows) {
  for (const int64_t width : {1, 16, 33, 128}) {
    Matrix x = Matrix::drawn(6, 4, 3 * width, 5);
    const Matrix before = x;
    kernels().l2_norm({.x = x.cube(3), .scale = 0.3f});
    x.expect_written_exactly();
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t head = 0; head < 3; ++head) {
        double sum = 1e-6;
        for (int64_t i = 0; i < width; ++i)
          sum += std::pow(static_cast<double>(before.at(r, head * width + i)), 2);
        for (int64_t i = 0; i < width; ++i) {
          const double want = static_cast<double>(before.at(r, head * width + i)) * 0.3 / std::sqrt(sum);
          ASSERT_NEAR(x.at(r, head * width + i), want,
                      std::abs(want) * (static_cast<double>(width) / 2 + 8) * kRound);
        }
      }
    }
  }
  Matrix none(0, 6);
  kernels().l2_norm({.x = none.cube(2)});
}

TEST_P(DeltaRows, Gates) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Matrix a = Matrix::drawn(7, 9, 5, 1), b = Matrix::drawn(8, 9, 5);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < 5; ++c) {
        a.at(r, c) *= 60;
        b.at(r, c) *= 60;
      }
    }
    a.at(0, 0) = 1e30f;
    a.at(1, 0) = -1e30f;
    Weight a_log(Matrix::drawn(9, 1, 5), dtype), dt_bias(Matrix::drawn(10, 1, 5), dtype);
    const auto vector = [&](Weight& w) { return view_of(w.view().data, dtype, {5}); };
    Matrix decay(9, 5), beta(9, 5, 2);
    kernels().delta_gates({.a = a.view(),
                           .b = b.view(),
                           .a_log = vector(a_log),
                           .dt_bias = vector(dt_bias),
                           .decay = decay.view(),
                           .beta = beta.view()});
    decay.expect_written_exactly();
    beta.expect_written_exactly();
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < 5; ++c) {
        const double x = static_cast<double>(a.at(r, c)) + dt_bias.at(0, c);
        const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
        const double g = -std::exp(a_log.at(0, c)) * softplus;
        EXPECT_NEAR(decay.at(r, c), std::exp(g), 1e-7) << x;
        EXPECT_NEAR(beta.at(r, c), 1 / (1 + std::exp(-static_cast<double>(b.at(r, c)))), 1e-7);
      }
    }
    EXPECT_EQ(decay.at(0, 0), 0);  // forgets all
    EXPECT_EQ(decay.at(1, 0), 1);  // forgets nothing
  }
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(DeltaRows);

struct Heads {
  int count = 0, group = 1, first_in_group = 0;
  int64_t key_dim = 0, value_dim = 0;
  int key_of(int head) const { return (first_in_group + head) / group; }
  int num_keys() const { return count == 0 ? 0 : key_of(count - 1) + 1; }
};

// Rows of one batch. Keys and queries are about as long as normalised ones.
struct Inputs {
  Matrix q, k, v, decay, beta;
  Inputs(uint64_t seed, int64_t rows, const Heads& heads)
      : q(Matrix::drawn(seed, rows, heads.num_keys() * heads.key_dim, 3)),
        k(Matrix::drawn(seed + 1, rows, heads.num_keys() * heads.key_dim)),
        v(Matrix::drawn(seed + 2, rows, heads.count * heads.value_dim, 1)),
        decay(Matrix::drawn(seed + 3, rows, heads.count)),
        beta(Matrix::drawn(seed + 4, rows, heads.count, 2)) {
    for (int64_t r = 0; r < rows; ++r) {
      for (Matrix* keys : {&q, &k})
        for (int64_t c = 0; c < keys->cols(); ++c)
          keys->at(r, c) /= std::sqrt(static_cast<float>(heads.key_dim) / 3);
      for (int64_t c = 0; c < heads.count; ++c) {
        decay.at(r, c) = std::exp(-0.1f - 0.1f * decay.at(r, c));
        beta.at(r, c) = 0.5f + 0.5f * beta.at(r, c);
      }
    }
  }
};

// The chunked form in float64, of one head from an empty state.
class Chunked {
 public:
  Chunked(const Inputs& in, const Heads& heads, int head, int64_t first_row, int64_t num_rows)
      : in_(in), heads_(heads), head_(head), first_(first_row) {
    state.assign(static_cast<size_t>(heads.key_dim * heads.value_dim), 0.0);
    out.assign(static_cast<size_t>(num_rows * heads.value_dim), 0.0);
    for (int64_t begin = 0; begin < num_rows; begin += 64)
      chunk(begin, std::min<int64_t>(64, num_rows - begin));
  }
  std::vector<double> state;  // [key_dim, value_dim]
  std::vector<double> out;    // [rows, value_dim]

 private:
  double key(const Matrix& m, int64_t t, int64_t c) const {
    return static_cast<double>(m.at(first_ + t, heads_.key_of(head_) * heads_.key_dim + c));
  }
  double product(const Matrix& a, int64_t i, const Matrix& b, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < heads_.key_dim; ++c) sum += key(a, i, c) * key(b, j, c);
    return sum;
  }
  double read(const Matrix& m, int64_t t, int64_t c) const {  // (Sᵀ m_t)[c]
    double sum = 0;
    for (int64_t i = 0; i < heads_.key_dim; ++i)
      sum += key(m, t, i) * state[static_cast<size_t>(i * heads_.value_dim + c)];
    return sum;
  }

  void chunk(int64_t begin, int64_t size) {
    const int64_t width = heads_.value_dim;
    std::vector<double> log_decay;  // from before the chunk's first row to after row i
    for (int64_t i = 0; i < size; ++i)
      log_decay.push_back((i == 0 ? 0 : log_decay.back()) +
                          std::log(static_cast<double>(in_.decay.at(first_ + begin + i, head_))));
    const auto kept = [&](int64_t from, int64_t to) {
      return std::exp(log_decay[static_cast<size_t>(to)] - log_decay[static_cast<size_t>(from)]);
    };
    const auto since_begin = [&](int64_t i) { return std::exp(log_decay[static_cast<size_t>(i)]); };
    // (I + A) N = diag(beta) (V - diag(e^G) K S): forward substitution.
    std::vector<double> corrected(static_cast<size_t>(size * width));
    for (int64_t i = 0; i < size; ++i) {
      const double beta = in_.beta.at(first_ + begin + i, head_);
      for (int64_t c = 0; c < width; ++c) {
        double sum = static_cast<double>(in_.v.at(first_ + begin + i, head_ * width + c)) -
                     since_begin(i) * read(in_.k, begin + i, c);
        for (int64_t j = 0; j < i; ++j)
          sum -= kept(j, i) * product(in_.k, begin + i, in_.k, begin + j) *
                 corrected[static_cast<size_t>(j * width + c)];
        corrected[static_cast<size_t>(i * width + c)] = beta * sum;
      }
    }
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t c = 0; c < width; ++c) {
        double sum = since_begin(i) * read(in_.q, begin + i, c);
        for (int64_t j = 0; j <= i; ++j)
          sum += kept(j, i) * product(in_.q, begin + i, in_.k, begin + j) *
                 corrected[static_cast<size_t>(j * width + c)];
        out[static_cast<size_t>((begin + i) * width + c)] = sum;
      }
    }
    for (int64_t k = 0; k < heads_.key_dim; ++k) {
      for (int64_t c = 0; c < width; ++c) {
        double& s = state[static_cast<size_t>(k * width + c)];
        s *= since_begin(size - 1);
        for (int64_t j = 0; j < size; ++j)
          s += kept(j, size - 1) * key(in_.k, begin + j, k) * corrected[static_cast<size_t>(j * width + c)];
      }
    }
  }

  const Inputs& in_;
  const Heads& heads_;
  const int head_;
  const int64_t first_;
};

class GatedDelta : public KernelsTest {
 protected:
  void run(Inputs& in, const Heads& heads, const std::vector<PagedSequence>& sequences, State& state,
           Matrix& out) {
    kernels().gated_delta({.q = in.q.cube(heads.num_keys()),
                           .k = in.k.cube(heads.num_keys()),
                           .v = in.v.cube(heads.count),
                           .decay = in.decay.view(),
                           .beta = in.beta.view(),
                           .sequences = sequences,
                           .group = heads.group,
                           .first_in_group = heads.first_in_group,
                           .state = state.heads(heads.count),
                           .out = out.cube(heads.count)});
  }
  static State state_for(int64_t slots, const Heads& heads) {
    return State(slots, heads.count * heads.key_dim, heads.value_dim);
  }
};

// By hand: the state 2 decays to 1, the error is 3 - 1 = 2, half of it is written, 2 is read.
TEST_P(GatedDelta, WorkedExample) {
  const Heads heads = {.count = 1, .key_dim = 1, .value_dim = 1};
  Inputs in(0, 1, heads);
  in.q.at(0, 0) = in.k.at(0, 0) = 1;
  in.v.at(0, 0) = 3;
  in.decay.at(0, 0) = in.beta.at(0, 0) = 0.5f;
  State state = state_for(1, heads);
  state.at(0, 0) = 2;
  Matrix out(1, 1);
  run(in, heads, {sequence(0, 0, 1, 9)}, state, out);
  EXPECT_EQ(out.at(0, 0), 2);
  EXPECT_EQ(state.at(0, 0), 2);
}

// Prompts shorter and longer than a chunk, beside each other and padding.
TEST_P(GatedDelta, AgreesWithTheChunkedForm) {
  for (const Heads& heads :
       {Heads{.count = 2, .group = 1, .key_dim = 16, .value_dim = 16},
        Heads{.count = 3, .group = 2, .first_in_group = 1, .key_dim = 32, .value_dim = 20},
        Heads{.count = 1, .group = 4, .first_in_group = 3, .key_dim = 5, .value_dim = 131},
        Heads{.count = 2, .group = 2, .key_dim = 128, .value_dim = 128}}) {
    Inputs in(20, 210, heads);
    for (const int64_t row : {0, 151, 209}) {  // padding
      for (Matrix* m : {&in.q, &in.k, &in.v, &in.decay, &in.beta})
        for (int64_t c = 0; c < m->cols(); ++c) m->at(row, c) = std::nanf("");
    }
    State state = state_for(3, heads);
    Matrix out(210, heads.count * heads.value_dim, 2);
    run(in, heads, {sequence(2, 1, 150, 150), sequence(0, 152, 57, 57)}, state, out);
    out.expect_written_exactly();
    for (const PagedSequence& one : {sequence(2, 1, 150, 150), sequence(0, 152, 57, 57)}) {
      for (int head = 0; head < heads.count; ++head) {
        const Chunked want(in, heads, head, one.first_row, one.num_rows);
        for (int64_t t = 0; t < one.num_rows; ++t) {
          for (int64_t c = 0; c < heads.value_dim; ++c)
            ASSERT_NEAR(out.at(one.first_row + t, head * heads.value_dim + c),
                        want.out[static_cast<size_t>(t * heads.value_dim + c)], 5e-6)
                << "row " << t << " head " << head;
        }
        for (int64_t i = 0; i < heads.key_dim * heads.value_dim; ++i)
          ASSERT_NEAR(state.at(one.slot, head * heads.key_dim * heads.value_dim + i),
                      want.state[static_cast<size_t>(i)], 5e-6);
      }
    }
    for (const int64_t row : {0, 151, 209}) EXPECT_EQ(out.at(row, 0), 0) << "padding";
  }
}

TEST_P(GatedDelta, StepsSlotsAndNeighboursLeaveNoTrace) {
  const Heads heads = {.count = 3, .group = 2, .first_in_group = 1, .key_dim = 24, .value_dim = 211};
  Inputs in(30, 150, heads);
  State state = state_for(1, heads);
  Matrix whole(150, heads.count * heads.value_dim);
  run(in, heads, {sequence(0, 0, 150, 150)}, state, whole);
  for (const auto& cut : kCuts) {
    State other = state_for(4, heads);
    int32_t done = 0;
    for (const int32_t count : cut) {
      Inputs now(40, count + 2, heads);
      const auto copy = [&](const Matrix& from, Matrix& to) {
        for (int64_t r = 0; r < count; ++r)
          for (int64_t c = 0; c < from.cols(); ++c) to.at(r + 2, c) = from.at(done + r, c);
      };
      copy(in.q, now.q);
      copy(in.k, now.k);
      copy(in.v, now.v);
      copy(in.decay, now.decay);
      copy(in.beta, now.beta);
      Matrix out(count + 2, heads.count * heads.value_dim);
      run(now, heads, {sequence(1, 0, 2, 2), sequence(3, 2, count, done + count), sequence(0, 0, 0, 9)},
          other, out);
      for (int32_t r = 0; r < count; ++r)
        ASSERT_TRUE(out.row_equals(r + 2, whole, done + r)) << "token " << done + r;
      done += count;
    }
    EXPECT_TRUE(other.slot_equals(3, state, 0));
  }
}

// A head's bits do not depend on which other heads the rank has.
TEST_P(GatedDelta, SplitsOfTheHeadsLeaveNoTrace) {
  const Heads all = {.count = 6, .group = 3, .key_dim = 16, .value_dim = 33};
  Inputs in(50, 20, all);
  State state = state_for(1, all);
  Matrix whole(20, all.count * all.value_dim);
  run(in, all, {sequence(0, 0, 20, 20)}, state, whole);
  for (int begin = 0; begin < 6; ++begin) {
    for (int end = begin + 1; end <= 6; ++end) {
      Heads heads = all;
      heads.count = end - begin;
      heads.first_in_group = begin % 3;
      Inputs part(60, 20, heads);
      const auto copy = [&](const Matrix& from, Matrix& to, int64_t first) {
        for (int64_t r = 0; r < 20; ++r)
          for (int64_t c = 0; c < to.cols(); ++c) to.at(r, c) = from.at(r, first + c);
      };
      copy(in.q, part.q, begin / 3 * all.key_dim);
      copy(in.k, part.k, begin / 3 * all.key_dim);
      copy(in.v, part.v, begin * all.value_dim);
      copy(in.decay, part.decay, begin);
      copy(in.beta, part.beta, begin);
      State part_state = state_for(1, heads);
      Matrix out(20, heads.count * heads.value_dim);
      run(part, heads, {sequence(0, 0, 20, 20)}, part_state, out);
      for (int64_t r = 0; r < 20; ++r)
        for (int64_t c = 0; c < out.cols(); ++c)
          ASSERT_EQ(out.at(r, c), whole.at(r, begin * all.value_dim + c))
              << "heads " << begin << " to " << end;
    }
  }
}

// What is not finite stays in its sequence, and in the rows from there on.
TEST_P(GatedDelta, NanStaysInItsSequence) {
  const Heads heads = {.count = 2, .group = 2, .key_dim = 16, .value_dim = 16};
  Matrix clean(20, 32), spoilt(20, 32);
  for (Matrix* out : {&clean, &spoilt}) {
    Inputs in(70, 20, heads);
    if (out == &spoilt) in.v.at(4, 3) = kInfinity;
    State state = state_for(2, heads);
    run(in, heads, {sequence(0, 0, 10, 10), sequence(1, 10, 10, 10)}, state, *out);
  }
  for (int64_t r = 0; r < 20; ++r) {
    const bool is_spoilt = r >= 4 && r < 10;
    EXPECT_EQ(!std::isfinite(spoilt.at(r, 3)), is_spoilt) << r;
    if (!is_spoilt) {
      EXPECT_TRUE(spoilt.row_equals(r, clean, r)) << r;
    }
  }
}

TEST_P(GatedDelta, NothingToDo) {
  const Heads heads = {.count = 2, .group = 1, .key_dim = 4, .value_dim = 4};
  Inputs none(80, 0, heads), some(81, 3, heads);
  State state = state_for(1, heads);
  Matrix no_out(0, 8), out(3, 8);
  run(none, heads, {sequence(0, 0, 0, 0)}, state, no_out);
  run(some, heads, {}, state, out);
  for (int64_t r = 0; r < 3; ++r) EXPECT_EQ(out.at(r, 0), 0);
}

TEST_P(GatedDelta, WhatDoesNotFitIsABug) {
  const Heads heads = {.count = 2, .group = 2, .key_dim = 4, .value_dim = 4};
  Inputs in(90, 3, heads);
  State state = state_for(2, heads);
  Matrix out(3, 8);
  for (const auto& wrong : {std::vector<PagedSequence>{sequence(2, 0, 1, 1)},
                            {sequence(-1, 0, 1, 1)},
                            {sequence(0, 0, 4, 4)},
                            {sequence(0, 1, 2, 1)},
                            {sequence(1, 0, 1, 1), sequence(1, 1, 1, 1)}})
    EXPECT_THROW(run(in, heads, wrong, state, out), Fatal);
  Heads more = heads;
  more.first_in_group = 1;  // begins in the middle of a group, so two key heads are read
  EXPECT_THROW(kernels().gated_delta({.q = in.q.cube(1),
                                      .k = in.k.cube(1),
                                      .v = in.v.cube(2),
                                      .decay = in.decay.view(),
                                      .beta = in.beta.view(),
                                      .sequences = {},
                                      .group = more.group,
                                      .first_in_group = more.first_in_group,
                                      .state = state.heads(2),
                                      .out = out.cube(2)}),
               Fatal);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(GatedDelta);

}  // namespace
}  // namespace lockstep::kernels
