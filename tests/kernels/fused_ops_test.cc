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

// A row of two experts, one that goes nowhere, and one with an expert that is its neighbour's too: the same
// bits as slots, experts and sum one after the other, on exactly as many slots as are in use.
TEST_P(FusedOps, RowsThroughTheirExpertsAreSlotsExpertsAndSums) {
  constexpr int64_t kRows = 3, kTopK = 2, kHidden = 20, kInter = 7, kExperts = 4, kSlots = kRows * kTopK;
  std::vector<int32_t> idx = {3, 1, -1, -1, 1, 0}, slot_of(kSlots), start(kExperts + 1), slot_of_one(kSlots),
                       start_one(kExperts + 1);
  Matrix x = Matrix::drawn(1, kRows, kHidden), weight = Matrix::drawn(2, kRows, kTopK),
         plus = Matrix::drawn(3, kRows, kHidden);
  std::vector<Weight> weights;
  for (uint64_t e = 0; e < uint64_t{kExperts}; ++e) {
    weights.emplace_back(Matrix::drawn(10 + e, kInter, kHidden), DType::kBF16);
    weights.emplace_back(Matrix::drawn(20 + e, kInter, kHidden), DType::kBF16);
    weights.emplace_back(Matrix::drawn(30 + e, kHidden, kInter), DType::kBF16);
  }
  std::vector<WeightView> gate, up, down;
  for (size_t at = 0; at < weights.size(); at += 3) {
    gate.push_back(weights[at].view());
    up.push_back(weights[at + 1].view());
    down.push_back(weights[at + 2].view());
  }
  const auto placed = [&](std::vector<int32_t>& slots) {
    return PlaceSlotsArgs::Source{.x = x.view(),
                                  .expert_idx = view_of(idx.data(), {kRows, kTopK}),
                                  .slot_of = view_of(slots.data(), {kRows, kTopK})};
  };
  Matrix room(kSlots, kHidden), scratch(kSlots, 2 * kInter), y(kSlots, kHidden), out(kRows, kHidden),
      onto = Matrix::drawn(4, kRows, kHidden);
  Matrix room_one(kSlots, kHidden), scratch_one(4, 2 * kInter), y_one(4, kHidden), expected(kRows, kHidden),
      expected_onto = onto;

  const PlaceSlotsArgs::Source source = placed(slot_of);
  const PullWeightedArgs::Source pulled{.y = y.view(), .slot_of = source.slot_of};
  const TensorView starts = view_of(start.data(), {kExperts + 1});
  kernels().routed_ffn(
      {.place = {.sources = {&source, 1}, .expert_start = starts, .out = room.view()},
       .ffn = {.x = room.view(),
               .expert_start = starts,
               .gate = gate,
               .up = up,
               .down = down,
               .scratch = scratch.view(),
               .y = y.view()},
       .pull = {.pull = {.sources = {&pulled, 1}, .weight = weight.view(), .out = out.view()},
                .plus = plus.view(),
                .onto = onto.view()}});

  const PlaceSlotsArgs::Source source_one = placed(slot_of_one);
  const TensorView starts_one = view_of(start_one.data(), {kExperts + 1});
  kernels().place_slots({.sources = {&source_one, 1}, .expert_start = starts_one, .out = room_one.view()});
  kernels().grouped_ffn({.x = room_one.view().row_range(0, 4),
                         .expert_start = starts_one,
                         .gate = gate,
                         .up = up,
                         .down = down,
                         .scratch = scratch_one.view(),
                         .y = y_one.view()});
  const PullWeightedArgs::Source pulled_one{.y = y_one.view(), .slot_of = source_one.slot_of};
  kernels().pull_weighted({.sources = {&pulled_one, 1}, .weight = weight.view(), .out = expected.view()});
  kernels().add({.x = expected.view(), .y = plus.view()});
  kernels().add({.x = expected_onto.view(), .y = expected.view()});
  for (int64_t row = 0; row < kRows; ++row) {
    EXPECT_TRUE(out.row_equals(row, expected, row)) << row;
    EXPECT_TRUE(onto.row_equals(row, expected_onto, row)) << row;
  }
}

TEST_P(FusedOps, LogitsOfARouterAreRouted) {
  Matrix x = Matrix::of({{1, 2}, {3, -1}}), logits(2, 3), weight(2, 1);
  Weight w(Matrix::of({{1, 0}, {0, 1}, {1, 1}}), DType::kF32);
  std::vector<int32_t> idx(2, -7);
  const std::vector<uint8_t> valid = {1, 1};
  kernels().linear_route({.product = {.x = x.view(), .w = w.view(), .out = logits.view()},
                          .route = {.logits = logits.view(),
                                    .valid = valid,
                                    .top_k = 1,
                                    .expert_idx = view_of(idx.data(), {2, 1}),
                                    .weight = weight.view()}});
  EXPECT_EQ(idx, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(logits.at(0, 2), 3.0f);
  EXPECT_EQ(weight.at(1, 0), 1.0f);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(FusedOps);

}  // namespace
}  // namespace lockstep::kernels
