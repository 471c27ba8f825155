// Ops on single rows: embed, rms_norm, add, silu_mul, rope.
#include <limits>
#include <numbers>

#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"

namespace lockstep::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<int64_t> kWidths = {1, 7, 16, 33, 64, 257};

class Rows : public KernelsTest {};

TEST_P(Rows, EmbedCopiesRowsAndZeroesWhatIsOutside) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Weight table(Matrix::drawn(1, 5, 9), dtype, 2);
    const std::vector<int32_t> ids = {4, 0, -1, 5, 2147483647, 4};
    Matrix out(6, 9, 3);
    kernels().embed({.token_ids = ids, .table = table.view(), .out = out.view()});
    out.expect_written_exactly();
    for (int64_t r = 0; r < 6; ++r) {
      const bool known = r < 2 || r == 5;
      for (int64_t c = 0; c < 9; ++c) {
        EXPECT_EQ(out.at(r, c), known ? table.at(ids[static_cast<size_t>(r)], c) : 0.0) << r << ", " << c;
      }
    }
  }
}

// By hand: the mean square of (3, 4) is 12.5, its root 3.5355339.
TEST_P(Rows, RmsNormWorkedExample) {
  Matrix x = Matrix::of({{3, 4}});
  std::vector<float> weight = {1, 2};
  Matrix out(1, 2);
  RmsNormArgs args{.x = x.view(), .weight = view_of(weight.data(), {2}), .eps = 0, .out = out.view()};
  kernels().rms_norm(args);
  EXPECT_FLOAT_EQ(out.at(0, 0), 0.84852814f);
  EXPECT_FLOAT_EQ(out.at(0, 1), 2.2627417f);
  EXPECT_EQ(args.first_non_finite_row, -1);
}

TEST_P(Rows, RmsNorm) {
  for (const int64_t width : kWidths) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Matrix x = Matrix::drawn(2, 4, width, 2);
      Weight weight(Matrix::drawn(3, 1, width), dtype);
      TensorView w = weight.view();
      w = view_of(w.data, dtype, {width});
      Matrix out(4, width, 1);
      RmsNormArgs args{.x = x.view(), .weight = w, .eps = 1e-3f, .out = out.view()};
      kernels().rms_norm(args);
      out.expect_written_exactly();
      EXPECT_EQ(args.first_non_finite_row, -1);
      for (int64_t r = 0; r < 4; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < width; ++c)
          sum += static_cast<double>(x.at(r, c)) * static_cast<double>(x.at(r, c));
        const double scale = 1 / std::sqrt(sum / static_cast<double>(width) + static_cast<double>(1e-3f));
        for (int64_t c = 0; c < width; ++c) {
          const double want = weight.at(0, c) * scale * static_cast<double>(x.at(r, c));
          // The square root halves the relative error of the sum; four more roundings.
          const double roundings = static_cast<double>(width) / 2 + 5;
          ASSERT_NEAR(out.at(r, c), want, std::abs(want) * roundings * kRound)
              << "width " << width << " at " << c;
        }
      }
      RmsNormArgs in_place{.x = x.view(), .weight = w, .eps = 1e-3f, .out = x.view()};
      kernels().rms_norm(in_place);
      for (int64_t r = 0; r < 4; ++r) EXPECT_TRUE(x.row_equals(r, out, r)) << "in place, row " << r;
    }
  }
}

TEST_P(Rows, RmsNormNamesTheFirstRowThatIsNotFinite) {
  const auto first_bad = [&](std::vector<std::pair<int64_t, float>> spoilt) {
    Matrix x = Matrix::drawn(4, 7, 35);
    for (const auto& [row, value] : spoilt) x.at(row, 34) = value;
    std::vector<float> weight(35, 1.0f);
    Matrix out(7, 35);
    RmsNormArgs args{
        .x = x.view(), .weight = view_of(weight.data(), {35}), .out = out.view(), .first_non_finite_row = 3};
    kernels().rms_norm(args);
    return args.first_non_finite_row;
  };
  EXPECT_EQ(first_bad({}), -1);
  EXPECT_EQ(first_bad({{5, std::nanf("")}, {2, kInfinity}}), 2);
  EXPECT_EQ(first_bad({{6, -kInfinity}}), 6);
  EXPECT_EQ(first_bad({{0, 3e38f}}), 0);  // finite, its square is not
}

TEST_P(Rows, RmsNormOfNothing) {
  Matrix no_rows(0, 8), no_width(3, 0), out(3, 0);
  std::vector<float> weight(8, 1.0f);
  RmsNormArgs rows{.x = no_rows.view(), .weight = view_of(weight.data(), {8}), .out = no_rows.view()};
  kernels().rms_norm(rows);
  EXPECT_EQ(rows.first_non_finite_row, -1);
  RmsNormArgs width{.x = no_width.view(), .weight = view_of(weight.data(), {0}), .out = out.view()};
  kernels().rms_norm(width);
  EXPECT_EQ(width.first_non_finite_row, -1);
  out.expect_written_exactly();
}

TEST_P(Rows, Add) {
  for (const int64_t width : kWidths) {
    Matrix x = Matrix::drawn(5, 3, width, 4);
    const Matrix before = x;
    Matrix y = Matrix::drawn(6, 3, width);
    kernels().add({.x = x.view(), .y = y.view()});
    x.expect_written_exactly();
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t c = 0; c < width; ++c) EXPECT_EQ(x.at(r, c), before.at(r, c) + y.at(r, c));
    }
  }
  Matrix none(0, 4);
  kernels().add({.x = none.view(), .y = none.view()});
}

// One gate a value, and one a row. exp to 1 unit in the last place, then two roundings.
TEST_P(Rows, SigmoidMul) {
  for (const int64_t width : kWidths) {
    for (const int64_t gates : {width, int64_t{1}}) {
      Matrix gate = Matrix::drawn(9, 5, gates, 1);
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t c = 0; c < gates; ++c) gate.at(r, c) *= 30;
      }
      gate.at(1, 0) = kInfinity;
      gate.at(2, 0) = -kInfinity;
      Matrix x = Matrix::drawn(10, 5, width, 2);
      const Matrix before = x;
      kernels().sigmoid_mul({.x = x.view(), .gate = gate.view()});
      x.expect_written_exactly();
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t c = 0; c < width; ++c) {
          const double g = gate.at(r, gates == 1 ? 0 : c);
          const double want = static_cast<double>(before.at(r, c)) / (1 + std::exp(-g));
          ASSERT_NEAR(x.at(r, c), want, std::abs(want) * 5e-7) << "gate " << g;
        }
      }
    }
  }
  Matrix none(0, 4), no_gates(0, 1);
  kernels().sigmoid_mul({.x = none.view(), .gate = no_gates.view()});
}

// exp to 1 unit in the last place, then three roundings: 2e-7 · 2 is never reached, 1e-6 was asked for.
TEST_P(Rows, SiluMul) {
  for (const int64_t width : kWidths) {
    Matrix gate = Matrix::drawn(7, 5, width, 1);
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t c = 0; c < width; ++c) gate.at(r, c) *= 30;
    }
    Matrix up = Matrix::drawn(8, 5, width, 2);
    Matrix out(5, width, 3);
    kernels().silu_mul({.gate = gate.view(), .up = up.view(), .out = out.view()});
    out.expect_written_exactly();
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const double g = gate.at(r, c);
        const double want = g / (1 + std::exp(-g)) * static_cast<double>(up.at(r, c));
        ASSERT_NEAR(out.at(r, c), want, std::abs(want) * 5e-7) << "gate " << g;
      }
    }
    kernels().silu_mul({.gate = gate.view(), .up = up.view(), .out = gate.view()});
    for (int64_t r = 0; r < 5; ++r) EXPECT_TRUE(gate.row_equals(r, out, r)) << "in place, row " << r;
  }
}

// gpt-oss: g · σ(1.702 g) · (u + 1) with g cut above at 7 and u on both sides.
TEST_P(Rows, AGateMayBeClampedSteeperAndShifted) {
  const Gating gating = {.limit = 7, .alpha = 1.702f, .up_shift = 1};
  for (const int64_t width : {1, 16, 33}) {
    Matrix gate = Matrix::drawn(17, 9, width), up = Matrix::drawn(18, 9, width, 2);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        gate.at(r, c) *= 12;
        up.at(r, c) *= 12;
      }
    }
    Matrix out(9, width, 3);
    kernels().silu_mul({.gate = gate.view(), .up = up.view(), .out = out.view(), .gating = gating});
    out.expect_written_exactly();
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const double g = std::min(static_cast<double>(gate.at(r, c)), 7.0);
        const double u = std::clamp(static_cast<double>(up.at(r, c)), -7.0, 7.0);
        const double want = g / (1 + std::exp(-static_cast<double>(gating.alpha) * g)) * (u + 1);
        // e^x doubles the rounding of its argument, which may be 12 · 1.702.
        ASSERT_NEAR(out.at(r, c), want, std::abs(want) * 3e-6 + 1e-12) << "gate " << g << ", up " << u;
      }
    }
  }
  Matrix gate = Matrix::of({{7, 7, 8, 1e30f, kInfinity, std::nanf(""), 1}});
  Matrix up = Matrix::of({{7, 7.5f, 7, -1e30f, kInfinity, 1, std::nanf("")}}), out(1, 7);
  kernels().silu_mul({.gate = gate.view(), .up = up.view(), .out = out.view(), .gating = gating});
  const double most = 7 / (1 + std::exp(-7 * 1.702));
  for (const int64_t c : {0, 1, 2, 4}) EXPECT_NEAR(out.at(0, c), most * 8, 1e-5) << c;
  EXPECT_NEAR(out.at(0, 3), most * -6, 1e-5);
  EXPECT_TRUE(std::isnan(out.at(0, 5)));
  EXPECT_TRUE(std::isnan(out.at(0, 6)));
  const Gating broken = {.limit = 0};
  EXPECT_THROW(
      kernels().silu_mul({.gate = gate.view(), .up = up.view(), .out = out.view(), .gating = broken}), Fatal);
}

TEST_P(Rows, SiluAtTheEndsOfTheFloats) {
  Matrix gate = Matrix::of({{0, 88.0f, 200.0f, 3e38f, -87.0f, -200.0f, -3e38f, std::nanf(""), kInfinity}});
  Matrix up = Matrix::of({{1, 1, 1, 1, 1, 1, 1, 1, 1}});
  Matrix out(1, 9);
  kernels().silu_mul({.gate = gate.view(), .up = up.view(), .out = out.view()});
  EXPECT_EQ(out.at(0, 0), 0.0f);
  EXPECT_EQ(out.at(0, 1), 88.0f);
  EXPECT_EQ(out.at(0, 2), 200.0f);
  EXPECT_EQ(out.at(0, 3), 3e38f);
  EXPECT_NEAR(out.at(0, 4), -87 * std::exp(-87.0), 1e-42);  // 1.4e-36
  EXPECT_EQ(out.at(0, 5), 0.0f);
  EXPECT_EQ(out.at(0, 6), 0.0f);
  EXPECT_TRUE(std::isnan(out.at(0, 7)));
  EXPECT_EQ(out.at(0, 8), kInfinity);
}

// A row's bits are the same wherever it stands in a batch.
TEST_P(Rows, ARowIsTheSameAloneAndInABatch) {
  for (const int64_t width : {33, 257}) {
    Matrix x = Matrix::drawn(9, 70, width);
    Matrix up = Matrix::drawn(10, 70, width);
    std::vector<float> weight(static_cast<size_t>(width), 0.5f);
    const TensorView w = view_of(weight.data(), {width});
    Matrix normed(70, width), silu(70, width);
    RmsNormArgs all{.x = x.view(), .weight = w, .out = normed.view()};
    kernels().rms_norm(all);
    kernels().silu_mul({.gate = x.view(), .up = up.view(), .out = silu.view()});
    for (int64_t r = 0; r < 70; ++r) {
      Matrix one(1, width);
      RmsNormArgs single{.x = x.view().row_range(r, 1), .weight = w, .out = one.view()};
      kernels().rms_norm(single);
      EXPECT_TRUE(one.row_equals(0, normed, r)) << "norm of row " << r;
      kernels().silu_mul(
          {.gate = x.view().row_range(r, 1), .up = up.view().row_range(r, 1), .out = one.view()});
      EXPECT_TRUE(one.row_equals(0, silu, r)) << "silu of row " << r;
    }
  }
}

struct Angles {
  Matrix cos, sin;
  Angles(int64_t positions, int64_t pairs) : cos(positions, pairs), sin(positions, pairs) {
    for (int64_t p = 0; p < positions; ++p) {
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs));
        cos.at(p, i) = static_cast<float>(std::cos(angle));
        sin.at(p, i) = static_cast<float>(std::sin(angle));
      }
    }
  }
};

// A quarter turn takes (1, 0) to (0, 1) and (0, 1) to (-1, 0).
TEST_P(Rows, RopeTurnsPairs) {
  const std::vector<int32_t> positions = {0};
  Matrix cos = Matrix::of({{0, 0}}), sin = Matrix::of({{1, 1}});
  Matrix interleaved = Matrix::of({{1, 0, 0, 1}});
  kernels().rope({.x = interleaved.view(),
                  .num_heads = 1,
                  .head_stride = 4,
                  .offset = 0,
                  .dim = 4,
                  .positions = positions,
                  .cos = cos.view(),
                  .sin = sin.view(),
                  .pairing = RopePairing::kInterleaved});
  EXPECT_EQ(interleaved.at(0, 0), 0);
  EXPECT_EQ(interleaved.at(0, 1), 1);
  EXPECT_EQ(interleaved.at(0, 2), -1);
  EXPECT_EQ(interleaved.at(0, 3), 0);
  Matrix half = Matrix::of({{1, 0, 0, 1}});  // pairs (1, 0) and (0, 1) again: x[0], x[2] and x[1], x[3]
  kernels().rope({.x = half.view(),
                  .num_heads = 1,
                  .head_stride = 4,
                  .offset = 0,
                  .dim = 4,
                  .positions = positions,
                  .cos = cos.view(),
                  .sin = sin.view(),
                  .pairing = RopePairing::kHalf});
  EXPECT_EQ(half.at(0, 0), 0);
  EXPECT_EQ(half.at(0, 1), -1);
  EXPECT_EQ(half.at(0, 2), 1);
  EXPECT_EQ(half.at(0, 3), 0);
}

// The interleaved rotation of x is the half rotation of x[π], permuted alike, π = (0, 2, 4, …, 1, 3, 5, …).
TEST_P(Rows, BothPairingsAgreeUpToThePermutation) {
  const int64_t dim = 12, rows = 5;
  Angles angles(64, dim / 2);
  const std::vector<int32_t> positions = {0, 1, 17, 63, 17};
  Matrix interleaved = Matrix::drawn(11, rows, dim);
  Matrix half(rows, dim);
  const auto permuted = [&](int64_t i) { return i < dim / 2 ? 2 * i : 2 * (i - dim / 2) + 1; };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < dim; ++i) half.at(r, i) = interleaved.at(r, permuted(i));
  }
  RopeArgs args{.x = interleaved.view(),
                .num_heads = 1,
                .head_stride = dim,
                .offset = 0,
                .dim = dim,
                .positions = positions,
                .cos = angles.cos.view(),
                .sin = angles.sin.view(),
                .pairing = RopePairing::kInterleaved};
  kernels().rope(args);
  args.x = half.view();
  args.pairing = RopePairing::kHalf;
  kernels().rope(args);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < dim; ++i)
      EXPECT_EQ(half.at(r, i), interleaved.at(r, permuted(i))) << r << ", " << i;
  }
}

TEST_P(Rows, RopeTouchesItsPartOfEveryHeadOnly) {
  const int64_t heads = 3, head_stride = 10, dim = 4, offset = 5;
  Angles angles(9, dim / 2);
  const std::vector<int32_t> positions = {8, 3};
  Matrix x = Matrix::drawn(12, 2, heads * head_stride, 2);
  const Matrix before = x;
  kernels().rope({.x = x.view(),
                  .num_heads = heads,
                  .head_stride = head_stride,
                  .offset = offset,
                  .dim = dim,
                  .positions = positions,
                  .cos = angles.cos.view(),
                  .sin = angles.sin.view(),
                  .pairing = RopePairing::kHalf});
  x.expect_written_exactly();
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t c = 0; c < heads * head_stride; ++c) {
      const int64_t in_head = c % head_stride - offset;
      if (in_head < 0 || in_head >= dim) {
        EXPECT_EQ(x.at(r, c), before.at(r, c)) << "value " << c << " is not rotated";
        continue;
      }
      const int64_t pair = in_head % 2;
      const double cos = angles.cos.at(positions[static_cast<size_t>(r)], pair);
      const double sin = angles.sin.at(positions[static_cast<size_t>(r)], pair);
      const double a = before.at(r, c - in_head + pair);
      const double b = before.at(r, c - in_head + pair + 2);
      EXPECT_NEAR(x.at(r, c), in_head < 2 ? a * cos - b * sin : b * cos + a * sin, 4 * kRound);
    }
  }
}

TEST_P(Rows, RopeOfNothingAndOfAPositionWithoutAngle) {
  Angles angles(4, 2);
  Matrix x = Matrix::drawn(13, 1, 4);
  const Matrix before = x;
  const std::vector<int32_t> position = {3}, beyond = {4}, below = {-1};
  RopeArgs args{.x = x.view(),
                .num_heads = 0,
                .head_stride = 4,
                .offset = 0,
                .dim = 4,
                .positions = position,
                .cos = angles.cos.view(),
                .sin = angles.sin.view()};
  kernels().rope(args);
  EXPECT_TRUE(x.row_equals(0, before, 0));
  args.num_heads = 1;
  args.positions = beyond;
  EXPECT_THROW(kernels().rope(args), Fatal);
  args.positions = below;
  EXPECT_THROW(kernels().rope(args), Fatal);
  args.positions = {};
  args.x = x.view().row_range(0, 0);
  kernels().rope(args);
  EXPECT_TRUE(x.row_equals(0, before, 0));
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(Rows);

}  // namespace
}  // namespace lockstep::kernels
