// Rows on their way: copies, sums in order, and to experts and back. Expected values are worked out by hand
// or come from the ops that a fused one stands for.
#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"

namespace lockstep::kernels {
namespace {

class RowMoves : public KernelsTest {};

TEST_P(RowMoves, CopiesComeFromTheNamedSources) {
  Matrix first = Matrix::of({{1, 2}, {3, 4}}), second = Matrix::of({{5, 6}, {7, 8}, {9, 10}}), out(4, 2, 3);
  const std::vector<TensorView> sources = {first.view(), second.view()};
  const std::vector<RowPiece> pieces = {{.source = 1, .src_row = 1, .dst_row = 0, .num_rows = 2},
                                        {.source = 0, .src_row = 0, .dst_row = 3, .num_rows = 1},
                                        {.source = 0, .src_row = 1, .dst_row = 2, .num_rows = 1},
                                        {.source = 0, .src_row = 2, .dst_row = 4, .num_rows = 0}};
  kernels().copy_rows({.sources = sources, .pieces = pieces, .out = out.view()});
  out.expect_written_exactly();
  const Matrix expected = Matrix::of({{7, 8}, {9, 10}, {3, 4}, {1, 2}});
  for (int64_t row = 0; row < 4; ++row) EXPECT_TRUE(out.row_equals(row, expected, row)) << row;
}

TEST_P(RowMoves, SumsAreInTheOrderOfTheAddends) {
  // In this order the small ones are lost to rounding; in the other they would not be.
  Matrix large = Matrix::of({{0}, {0x1p24f}}), one = Matrix::of({{0}, {1}}), same = Matrix::of({{0}, {1}}),
         out(1, 1);
  const std::vector<TensorView> addends = {large.view(), one.view(), same.view()};
  const RowPiece piece{.src_row = 1, .dst_row = 0, .num_rows = 1};
  kernels().sum_rows({.addends = addends, .pieces = {&piece, 1}, .out = out.view()});
  EXPECT_EQ(out.at(0, 0), 0x1p24f);
  const std::vector<TensorView> reversed = {one.view(), same.view(), large.view()};
  kernels().sum_rows({.addends = reversed, .pieces = {&piece, 1}, .out = out.view()});
  EXPECT_EQ(out.at(0, 0), 0x1p24f + 2);
}

TEST_P(RowMoves, SumAddNormIsItsThreeOpsBitForBit) {
  for (const int64_t rows : {0, 1, 8, 19}) {
    Matrix a = Matrix::drawn(1, rows, 33), b = Matrix::drawn(2, rows, 33, 2),
           residual = Matrix::drawn(3, rows, 33);
    Matrix kept = residual, sum(rows, 33), out(rows, 33), expected(rows, 33),
           weight = Matrix::drawn(4, 1, 33);
    const TensorView w = view_of(weight.view().data, DType::kF32, {33});
    const std::vector<TensorView> addends = {a.view(), b.view()};
    SumAddNormArgs fused{.addends = addends, .residual = residual.view(), .weight = w, .out = out.view()};
    kernels().sum_add_norm(fused);
    const RowPiece all{.num_rows = rows};
    kernels().sum_rows({.addends = addends, .pieces = {&all, 1}, .out = sum.view()});
    kernels().add({.x = kept.view(), .y = sum.view()});
    RmsNormArgs norm{.x = kept.view(), .weight = w, .out = expected.view()};
    kernels().rms_norm(norm);
    out.expect_written_exactly();
    for (int64_t row = 0; row < rows; ++row) {
      EXPECT_TRUE(out.row_equals(row, expected, row)) << row;
      EXPECT_TRUE(residual.row_equals(row, kept, row)) << row;
    }
    EXPECT_EQ(fused.first_non_finite_row, norm.first_non_finite_row);
  }
}

TEST_P(RowMoves, SlotsStandByExpertThenSourceThenRow) {
  Matrix x = Matrix::of({{1}, {2}, {3}}), other = Matrix::of({{10}}), none(0, 1);
  // Experts 4 and 5 are local.
  std::vector<int32_t> idx = {5, 1, 4, -1, 5, 4}, other_idx = {4, 5}, slots(6, -9), other_slots(2, -9);
  std::vector<int32_t> start(3, -9);
  const std::vector<PlaceSlotsArgs::Source> sources = {
      {.x = x.view(), .expert_idx = view_of(idx.data(), {3, 2}), .slot_of = view_of(slots.data(), {3, 2})},
      {.x = none.view(), .expert_idx = view_of(idx.data(), {0, 2}), .slot_of = view_of(slots.data(), {0, 2})},
      {.x = other.view(),
       .expert_idx = view_of(other_idx.data(), {1, 2}),
       .slot_of = view_of(other_slots.data(), {1, 2})}};
  Matrix out(8, 1);
  kernels().place_slots(
      {.sources = sources, .first_expert = 4, .expert_start = view_of(start.data(), {3}), .out = out.view()});
  EXPECT_EQ(start, (std::vector<int32_t>{0, 3, 6}));
  EXPECT_EQ(slots, (std::vector<int32_t>{3, -1, 0, -1, 4, 1}));
  EXPECT_EQ(other_slots, (std::vector<int32_t>{2, 5}));
  const std::vector<float> rows = {2, 3, 10, 1, 3, 10};
  for (size_t slot = 0; slot < rows.size(); ++slot)
    EXPECT_EQ(out.at(static_cast<int64_t>(slot), 0), rows[slot]);
}

TEST_P(RowMoves, WeightedRowsComeBackFromWhoeverHasThem) {
  Matrix here = Matrix::of({{1, 10}, {2, 20}}), there = Matrix::of({{100, 1000}});
  std::vector<int32_t> slots_here = {1, -1, -1, 0}, slots_there = {-1, 0, -1, -1};
  Matrix weight = Matrix::of({{0.5f, 2}, {9, 3}}), out(2, 2);
  const std::vector<PullWeightedArgs::Source> sources = {
      {.y = here.view(), .slot_of = view_of(slots_here.data(), {2, 2})},
      {.y = there.view(), .slot_of = view_of(slots_there.data(), {2, 2})}};
  kernels().pull_weighted({.sources = sources, .weight = weight.view(), .out = out.view()});
  EXPECT_EQ(out.at(0, 0), 0.5f * 2 + 2 * 100);
  EXPECT_EQ(out.at(0, 1), 0.5f * 20 + 2 * 1000);
  EXPECT_EQ(out.at(1, 0), 3);
  EXPECT_EQ(out.at(1, 1), 30);
}

TEST_P(RowMoves, RowsOutsideTheirViewsAreABug) {
  Matrix x = Matrix::drawn(1, 3, 2), out(3, 2);
  const std::vector<TensorView> sources = {x.view()};
  for (const RowPiece& piece : {RowPiece{.src_row = 1, .num_rows = 3}, RowPiece{.dst_row = 2, .num_rows = 2},
                                RowPiece{.source = 1, .num_rows = 1}, RowPiece{.src_row = -1, .num_rows = 1}})
    EXPECT_THROW(kernels().copy_rows({.sources = sources, .pieces = {&piece, 1}, .out = out.view()}), Fatal);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(RowMoves);

}  // namespace
}  // namespace lockstep::kernels
