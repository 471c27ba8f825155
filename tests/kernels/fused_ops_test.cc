// Ops that are several others in a row. Expected values come from the ops that they stand for, or are worked
// out by hand.
#include <cmath>
#include <limits>

#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/paged_cache.h"

namespace lockstep::kernels {
namespace {

class FusedOps : public KernelsTest {};

TEST_P(FusedOps, ProductsOfOneInputAreEachByItself) {
  Matrix x = Matrix::drawn(1, 3, 40), a(3, 7), b(3, 16), alone_a(3, 7), alone_b(3, 16);
  Weight wa(Matrix::drawn(2, 7, 40), DType::kBF16), wb(Matrix::drawn(3, 16, 40), DType::kF32);
  const std::vector<LinearArgs> both = {{.x = x.view(), .w = wa.view(), .out = a.view()},
                                        {.x = x.view(), .w = wb.view(), .out = b.view()}};
  kernels().linears(both);
  kernels().linear({.x = x.view(), .w = wa.view(), .out = alone_a.view()});
  kernels().linear({.x = x.view(), .w = wb.view(), .out = alone_b.view()});
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_TRUE(a.row_equals(row, alone_a, row)) << row;
    EXPECT_TRUE(b.row_equals(row, alone_b, row)) << row;
  }
  kernels().linears({});
}

// One head of two values a row, turned by a quarter: (a, b) becomes (-b, a); queries are normed, values not.
TEST_P(FusedOps, QueriesKeysAndValuesOnTheirWayIntoAttention) {
  Matrix q = Matrix::of({{3, 4}}), k = Matrix::of({{6, 8}}), v = Matrix::of({{5, 7}});
  Matrix cos = Matrix::of({{1}, {0}}), sin = Matrix::of({{0}, {1}}), norm = Matrix::of({{2, 2}});
  PagedCache keys(1, 2, 1, 2, DType::kF32), values(1, 2, 1, 2, DType::kF32);
  const std::vector<PagedSequence> sequences = {keys.sequence(0, 0, 1, 2)};
  const std::vector<int32_t> positions = {1};
  const TensorView weight = view_of(norm.view().data, DType::kF32, {2});
  kernels().attention_rows({.q = q.view(),
                            .k = k.view(),
                            .v = v.view(),
                            .head_dim = 2,
                            .query_stride = 2,
                            .q_norm = weight,
                            .k_norm = weight,
                            .eps = 0,
                            .dim = 2,
                            .q_positions = positions,
                            .k_positions = positions,
                            .cos = cos.view(),
                            .sin = sin.view(),
                            .sequences = sequences,
                            .page_size = 1,
                            .keys = keys.view(),
                            .values = values.view()});
  const double root = std::sqrt(12.5);  // of the mean square of 3 and 4; of 6 and 8 twice that
  EXPECT_NEAR(q.at(0, 0), -8 / root, 1e-5);
  EXPECT_NEAR(q.at(0, 1), 6 / root, 1e-5);
  EXPECT_NEAR(keys.at(0, 1, 0), -8 / root, 1e-5);
  EXPECT_NEAR(keys.at(0, 1, 1), 6 / root, 1e-5);
  EXPECT_EQ(values.at(0, 1, 0), 5);
  EXPECT_EQ(values.at(0, 1, 1), 7);
}

TEST_P(FusedOps, PulledRowsAreAddedToWhatIsThere) {
  Matrix y = Matrix::of({{1, 2}, {10, 20}}), weight = Matrix::of({{0.5f, 2}}), out(1, 2);
  Matrix plus = Matrix::of({{100, 200}}), onto = Matrix::of({{1000, 1000}});
  std::vector<int32_t> slots = {1, 0};
  const std::vector<PullWeightedArgs::Source> sources = {
      {.y = y.view(), .slot_of = view_of(slots.data(), {1, 2})}};
  const PullWeightedArgs pull{.sources = sources, .weight = weight.view(), .out = out.view()};
  kernels().pull_add({.pull = pull});
  EXPECT_EQ(out.at(0, 0), 7);
  EXPECT_EQ(out.at(0, 1), 14);
  kernels().pull_add({.pull = pull, .plus = plus.view(), .onto = onto.view()});
  EXPECT_EQ(out.at(0, 0), 107);
  EXPECT_EQ(onto.at(0, 1), 1214);
}

TEST_P(FusedOps, TheLargestIsTheFirstOfEquals) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Matrix x = Matrix::of({{1, 5, 5, 9}, {-4, -3, -9, 0}, {1, 2, 3, -kInfinity}, {2, std::nanf(""), 1, 0}});
  std::vector<float> values(4);
  std::vector<int32_t> ids(4);
  kernels().largest(
      {.x = x.view(), .num_valid = 3, .value = view_of(values.data(), {4}), .idx = view_of(ids.data(), {4})});
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 1, -1, -1}));
  EXPECT_EQ(values[0], 5);
  EXPECT_EQ(values[1], -3);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(FusedOps);

}  // namespace
}  // namespace lockstep::kernels
