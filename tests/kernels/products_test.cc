// linear and matmul against sums in double precision, with the worst-case bound of a float32 sum of n
// products: (n + 1) roundings of at most 2^-24 each, of the sum of the absolute products (Higham, Accuracy
// and Stability of Numerical Algorithms, section 3.1). A product that is left out or counted twice is some
// 10^3 times larger.
#include <tuple>

#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"

namespace lockstep::kernels {
namespace {

enum class Op : uint8_t { kLinear, kMatmul };

struct Case {
  int64_t rows, in, out, gap;
  DType dtype;
};

Matrix weight_values(Op op, const Case& c, uint64_t seed) {
  return op == Op::kLinear ? Matrix::drawn(seed, c.out, c.in) : Matrix::drawn(seed, c.in, c.out);
}

void multiply(Kernels& kernels, Op op, const TensorView& x, const WeightView& w, const TensorView& out) {
  if (op == Op::kLinear) {
    kernels.linear({.x = x, .w = w, .out = out});
  } else {
    kernels.matmul({.x = x, .w = w, .out = out});
  }
}

void expect_product(Op op, const Matrix& x, const Weight& w, const Matrix& out) {
  out.expect_written_exactly();
  for (int64_t r = 0; r < out.rows(); ++r) {
    for (int64_t o = 0; o < out.cols(); ++o) {
      double sum = 0;
      double absolute = 0;
      for (int64_t k = 0; k < x.cols(); ++k) {
        const double product =
            static_cast<double>(x.at(r, k)) * (op == Op::kLinear ? w.at(o, k) : w.at(k, o));
        sum += product;
        absolute += std::abs(product);
      }
      ASSERT_NEAR(out.at(r, o), sum, static_cast<double>(x.cols() + 1) * kRound * absolute)
          << "row " << r << " output " << o;
    }
  }
}

class Products : public KernelsTest {
 protected:
  void run(Op op, const Case& c) {
    SCOPED_TRACE(
        fmt::format("{} rows, in {}, out {}, gap {}, {}", c.rows, c.in, c.out, c.gap, name_of(c.dtype)));
    Matrix x = Matrix::drawn(1, c.rows, c.in, c.gap);
    Weight w(weight_values(op, c, 2), c.dtype, c.gap);
    Matrix out(c.rows, c.out, c.gap);
    multiply(kernels(), op, x.view(), w.view(), out.view());
    expect_product(op, x, w, out);
  }
};

TEST_P(Products, OddSizesAndStrides) {
  for (const Op op : {Op::kLinear, Op::kMatmul}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t in : {1, 7, 16, 33, 257}) {
        for (const int64_t out : {1, 3, 8, 33, 70}) run(op, {3, in, out, in % 5, dtype});
      }
    }
  }
}

TEST_P(Products, ABiasIsAddedToEveryRow) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Matrix x = Matrix::drawn(1, 5, 33), plain(5, 19), biased(5, 19, 2);
    Weight w(Matrix::drawn(2, 19, 33), dtype), bias(Matrix::drawn(3, 1, 19), dtype);
    kernels().linear({.x = x.view(), .w = w.view(), .out = plain.view()});
    kernels().linear(
        {.x = x.view(), .w = w.view(), .out = biased.view(), .bias = view_of(bias.view().data, dtype, {19})});
    biased.expect_written_exactly();
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t o = 0; o < 19; ++o)
        EXPECT_NEAR(biased.at(r, o), plain.at(r, o) + bias.at(0, o), kRound * 2 * 20) << r << " " << o;
    }
    EXPECT_THROW(kernels().linear({.x = x.view(),
                                   .w = w.view(),
                                   .out = biased.view(),
                                   .bias = view_of(bias.view().data, dtype, {18})}),
                 Fatal);
  }
}

TEST_P(Products, EveryTileOfRows) {
  for (const Op op : {Op::kLinear, Op::kMatmul}) {
    for (int64_t rows = 1; rows <= 20; ++rows) run(op, {rows, 40, 37, 3, DType::kBF16});
  }
}

TEST_P(Products, BeyondOneBlockOfTheInnerDimension) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    run(Op::kLinear, {2, 1024, 9, 0, dtype});
    run(Op::kLinear, {7, 2061, 66, 5, dtype});
    run(Op::kLinear, {29, 2061, 37, 5, dtype});
    run(Op::kMatmul, {7, 1300, 66, 5, dtype});
  }
}

TEST_P(Products, AnyDimensionMayBeZero) {
  for (const Op op : {Op::kLinear, Op::kMatmul}) {
    run(op, {0, 5, 4, 0, DType::kF32});
    run(op, {3, 5, 0, 0, DType::kF32});
    run(op, {3, 0, 4, 2, DType::kBF16});  // the empty sum is zero, and written
  }
}

// The bits of a row do not depend on how many rows come with it.
TEST_P(Products, ARowIsTheSameAloneAndInABatch) {
  for (const Op op : {Op::kLinear, Op::kMatmul}) {
    for (const Case c : {Case{70, 257, 13, 0, DType::kBF16}, Case{70, 33, 70, 1, DType::kF32},
                         Case{70, 1100, 5, 0, DType::kF32}, Case{29, 2061, 21, 3, DType::kBF16}}) {
      Matrix x = Matrix::drawn(3, c.rows, c.in);
      Weight w(weight_values(op, c, 4), c.dtype, c.gap);
      Matrix all(c.rows, c.out);
      multiply(kernels(), op, x.view(), w.view(), all.view());
      for (int64_t rows = 1; rows <= c.rows; ++rows) {
        Matrix some(rows, c.out);
        multiply(kernels(), op, x.view().row_range(c.rows - rows, rows), w.view(), some.view());
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(some.row_equals(r, all, c.rows - rows + r))
              << "row " << r << " of " << rows << ", in " << c.in;
        }
      }
    }
  }
}

// … nor on which outputs are computed with it, as when a weight is split over ranks by its rows.
TEST_P(Products, AnOutputIsTheSameAloneAndAmongOthers) {
  Matrix x = Matrix::drawn(5, 7, 130);
  Weight w(Matrix::drawn(6, 66, 130), DType::kBF16);
  Matrix all(7, 66);
  kernels().linear({.x = x.view(), .w = w.view(), .out = all.view()});
  for (const int64_t count : {1, 2, 3, 5, 9, 33}) {
    for (int64_t begin = 0; begin + count <= 66; begin += count) {
      Matrix part(7, count);
      kernels().linear({.x = x.view(), .w = w.view().row_range(begin, count), .out = part.view()});
      for (int64_t r = 0; r < 7; ++r) {
        for (int64_t o = 0; o < count; ++o)
          ASSERT_EQ(part.at(r, o), all.at(r, begin + o)) << begin << " + " << o;
      }
    }
  }
}

TEST_P(Products, NanInOneRowStaysThere) {
  for (const Op op : {Op::kLinear, Op::kMatmul}) {
    const Case c{9, 50, 20, 0, DType::kF32};
    Matrix x = Matrix::drawn(7, c.rows, c.in);
    Weight w(weight_values(op, c, 8), c.dtype);
    Matrix clean(c.rows, c.out);
    multiply(kernels(), op, x.view(), w.view(), clean.view());
    x.at(4, 49) = std::nanf("");
    Matrix out(c.rows, c.out);
    multiply(kernels(), op, x.view(), w.view(), out.view());
    for (int64_t r = 0; r < c.rows; ++r) {
      if (r == 4) {
        for (int64_t o = 0; o < c.out; ++o) EXPECT_TRUE(std::isnan(out.at(r, o)));
      } else {
        EXPECT_TRUE(out.row_equals(r, clean, r)) << "row " << r;
      }
    }
  }
}

TEST_P(Products, ShapesThatDisagreeAreABug) {
  Matrix x = Matrix::drawn(1, 2, 5);
  Weight w(Matrix::drawn(2, 3, 6), DType::kF32);
  Matrix out(2, 3);
  EXPECT_THROW(kernels().linear({.x = x.view(), .w = w.view(), .out = out.view()}), Fatal);
  Matrix short_out(2, 2);
  Weight good(Matrix::drawn(2, 3, 5), DType::kF32);
  EXPECT_THROW(kernels().linear({.x = x.view(), .w = good.view(), .out = short_out.view()}), Fatal);
  EXPECT_THROW(kernels().matmul({.x = x.view(), .w = good.view(), .out = out.view()}), Fatal);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(Products);

// grouped_ffn is made of the products above, so its cases live beside them.
struct Experts {
  std::vector<Weight> gate, up, down;
  std::vector<WeightView> gate_views, up_views, down_views;
  std::vector<Matrix> gate_bias, up_bias, down_bias;  // [1, inter], [1, hidden]; none at first
  std::vector<TensorView> gate_bias_views, up_bias_views, down_bias_views;
  Gating gating;
  std::vector<int32_t> expert_start;

  void add_biases(int64_t hidden, int64_t inter) {
    for (uint64_t e = 0; e < gate.size(); ++e) {
      gate_bias.push_back(Matrix::drawn(400 + e, 1, inter));
      up_bias.push_back(Matrix::drawn(500 + e, 1, inter));
      down_bias.push_back(Matrix::drawn(600 + e, 1, hidden));
    }
    for (size_t e = 0; e < gate.size(); ++e) {
      gate_bias_views.push_back(view_of(&gate_bias[e].at(0, 0), {inter}));
      up_bias_views.push_back(view_of(&up_bias[e].at(0, 0), {inter}));
      down_bias_views.push_back(view_of(&down_bias[e].at(0, 0), {hidden}));
    }
  }

  Experts(int64_t num_experts, int64_t hidden, int64_t inter, DType dtype) {
    for (uint64_t e = 0; e < static_cast<uint64_t>(num_experts); ++e) {
      gate.emplace_back(Matrix::drawn(100 + e, inter, hidden), dtype);
      up.emplace_back(Matrix::drawn(200 + e, inter, hidden), dtype);
      down.emplace_back(Matrix::drawn(300 + e, hidden, inter), dtype, 3);
    }
    for (size_t e = 0; e < gate.size(); ++e) {
      gate_views.push_back(gate[e].view());
      up_views.push_back(up[e].view());
      down_views.push_back(down[e].view());
    }
  }

  GroupedFfnArgs args(Matrix& x, const std::vector<int32_t>& starts, Matrix& scratch, Matrix& y) {
    expert_start = starts;
    return {.x = x.view(),
            .expert_start = view_of(expert_start.data(), {static_cast<int64_t>(expert_start.size())}),
            .gate = gate_views,
            .up = up_views,
            .down = down_views,
            .gate_bias = gate_bias_views,
            .up_bias = up_bias_views,
            .down_bias = down_bias_views,
            .gating = gating,
            .scratch = scratch.view(),
            .y = y.view()};
  }

  // One expert on one row in double precision.
  std::vector<double> of(size_t e, const Matrix& x, int64_t row, int64_t inter) const {
    std::vector<double> y(static_cast<size_t>(x.cols()), 0.0);
    for (int64_t i = 0; i < inter; ++i) {
      double g = 0;
      double u = 0;
      for (int64_t k = 0; k < x.cols(); ++k) {
        g += static_cast<double>(x.at(row, k)) * gate[e].at(i, k);
        u += static_cast<double>(x.at(row, k)) * up[e].at(i, k);
      }
      if (!gate_bias.empty()) {
        g += gate_bias[e].at(0, i);
        u += up_bias[e].at(0, i);
      }
      g = std::min(g, static_cast<double>(gating.limit));
      u = std::clamp(u, -static_cast<double>(gating.limit), static_cast<double>(gating.limit));
      const double activated = g / (1 + std::exp(-static_cast<double>(gating.alpha) * g)) *
                               (u + static_cast<double>(gating.up_shift));
      for (int64_t o = 0; o < x.cols(); ++o) y[static_cast<size_t>(o)] += activated * down[e].at(o, i);
    }
    for (int64_t o = 0; o < x.cols() && !down_bias_views.empty() && !down_bias_views[e].empty(); ++o)
      y[static_cast<size_t>(o)] += static_cast<double>(down_bias[e].at(0, o));
    return y;
  }
};

class GroupedFfn : public KernelsTest {};

TEST_P(GroupedFfn, EachExpertSeesItsRows) {
  const int64_t hidden = 19, inter = 11;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Experts experts(4, hidden, inter, dtype);
    const std::vector<int32_t> expert_start = {0, 3, 3, 4, 12};  // the second has no row
    Matrix x = Matrix::drawn(9, 12, hidden);
    Matrix scratch(12, 2 * inter);
    Matrix y(12, hidden);
    kernels().grouped_ffn(experts.args(x, expert_start, scratch, y));
    y.expect_written_exactly();
    for (size_t e = 0; e < 4; ++e) {
      for (int64_t row = expert_start[e]; row < expert_start[e + 1]; ++row) {
        const std::vector<double> want = experts.of(e, x, row, inter);
        // Values stay below 100 and pass some 32 roundings of a float each way.
        for (int64_t o = 0; o < hidden; ++o) ASSERT_NEAR(y.at(row, o), want[static_cast<size_t>(o)], 5e-5);
      }
    }
  }
}

TEST_P(GroupedFfn, BiasesAndAnotherGate) {
  const int64_t hidden = 19, inter = 11;
  Experts experts(3, hidden, inter, DType::kBF16);
  experts.add_biases(hidden, inter);
  experts.down_bias_views[2] = {};  // another shard owes it
  experts.gating = {.limit = 1.5f, .alpha = 1.702f, .up_shift = 1};
  const std::vector<int32_t> expert_start = {0, 2, 2, 7};
  Matrix x = Matrix::drawn(11, 7, hidden), scratch(7, 2 * inter), y(7, hidden);
  kernels().grouped_ffn(experts.args(x, expert_start, scratch, y));
  y.expect_written_exactly();
  for (size_t e = 0; e < 3; ++e) {
    for (int64_t row = expert_start[e]; row < expert_start[e + 1]; ++row) {
      const std::vector<double> want = experts.of(e, x, row, inter);
      for (int64_t o = 0; o < hidden; ++o) ASSERT_NEAR(y.at(row, o), want[static_cast<size_t>(o)], 5e-5);
    }
  }
  experts.up_bias_views.pop_back();
  EXPECT_THROW(kernels().grouped_ffn(experts.args(x, expert_start, scratch, y)), Fatal);
}

TEST_P(GroupedFfn, ARowDoesNotDependOnItsExpertsOtherRows) {
  const int64_t hidden = 40, inter = 24;
  Experts experts(2, hidden, inter, DType::kBF16);
  Matrix x = Matrix::drawn(10, 17, hidden);
  Matrix scratch(17, 2 * inter);
  Matrix all(17, hidden);
  kernels().grouped_ffn(experts.args(x, std::vector<int32_t>{0, 0, 17}, scratch, all));
  for (int64_t row = 0; row < 17; ++row) {
    Matrix one(1, hidden);
    for (int64_t c = 0; c < hidden; ++c) one.at(0, c) = x.at(row, c);
    Matrix one_scratch(1, 2 * inter);
    Matrix y(1, hidden);
    kernels().grouped_ffn(experts.args(one, std::vector<int32_t>{0, 0, 1}, one_scratch, y));
    EXPECT_TRUE(y.row_equals(0, all, row)) << row;
  }
}

TEST_P(GroupedFfn, NoRowsAndNoExperts) {
  Experts experts(3, 8, 4, DType::kF32);
  Matrix x(0, 8), scratch(0, 8), y(0, 8);
  kernels().grouped_ffn(experts.args(x, std::vector<int32_t>{0, 0, 0, 0}, scratch, y));
  y.expect_written_exactly();
  Experts none(0, 8, 4, DType::kF32);
  kernels().grouped_ffn(none.args(x, std::vector<int32_t>{0}, scratch, y));
  y.expect_written_exactly();
  Matrix one(1, 8), one_scratch(1, 8), one_y(1, 8);
  EXPECT_THROW(kernels().grouped_ffn(experts.args(one, std::vector<int32_t>{0, 1, 0, 1}, one_scratch, one_y)),
               Fatal);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(GroupedFfn);

TEST(Dispatch, RunsTheInstructionSetThatItNames) {
  for (const Implementation& implementation : implementations()) {
    if (implementation.target == 0) continue;
    hwy::SetSupportedTargetsForTest(implementation.target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    EXPECT_EQ(make_cpu_kernels()->name(), implementation.name);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace
}  // namespace lockstep::kernels
