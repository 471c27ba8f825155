// Ops that are several others in a row, and products of few rows, on the GPU against the reference's unfused
// ones.
#include "tests/gpu/gpu_test.h"

namespace lockstep::kernels::test {
namespace {

constexpr double kFloat = 5e-6, kWhole = 5e-5, kRounded = 4e-3;

class FusedOps : public OnGpu {};

// Of one x; depths that warps share out evenly, unevenly and that are too deep; widths that are no whole
// tiles.
TEST_F(FusedOps, ProductsOfFewRows) {
  for (const auto inputs : {LinearArgs::Inputs::kMayRound, LinearArgs::Inputs::kWhole})
    for (const int64_t depth : {8, 64, 96, 200, 768, 2048, 4096, 8192, 9000})
      for (const int64_t rows : {1, 3, 8, 9, 16, 17, 40}) {
        SCOPED_TRACE(fmt::format("{} rows, depth {}", rows, depth));
        Matrix x = Matrix::drawn(1, rows, depth);
        const std::vector<int64_t> widths = {48, 8, 5, 130};
        std::vector<Matrix> outs, expected;
        std::vector<Weight> weights, biases;
        for (size_t at = 0; at < widths.size(); ++at) {
          outs.emplace_back(rows, widths[at], 4);
          expected.emplace_back(rows, widths[at], 4);
          weights.emplace_back(Matrix::drawn(10 + at, widths[at], depth), DType::kBF16, 8);
          biases.emplace_back(Matrix::drawn(20 + at, 1, widths[at]), at == 1 ? DType::kF32 : DType::kBF16);
        }
        std::vector<LinearArgs> products;
        for (size_t at = 0; at < widths.size(); ++at) {
          products.push_back(
              {.x = x.view(), .w = weights[at].view(), .out = expected[at].view(), .inputs = inputs});
          if (at > 0)
            products[at].bias = view_of(biases[at].view().data, biases[at].view().dtype, {widths[at]});
        }
        reference().linears(products);
        std::vector<TensorView*> all;
        for (size_t at = 0; at < widths.size(); ++at) {
          products[at].out = outs[at].view();
          for (TensorView* view :
               {&products[at].x, &products[at].w.plain, &products[at].out, &products[at].bias})
            all.push_back(view);
        }
        HostViews(gpu()).run(all, [&](Kernels& kernels) { kernels.linears(products); });
        for (size_t at = 0; at < widths.size(); ++at)
          expect_close(outs[at], expected[at], inputs == LinearArgs::Inputs::kWhole ? kWhole : kRounded);
      }
}

struct HeadCase {
  int heads, kv_heads, head_dim, query_stride, dim;
  bool norms;
};

TEST_F(FusedOps, AttentionRows) {
  for (const HeadCase& one : {HeadCase{8, 2, 128, 128, 128, true}, HeadCase{3, 3, 64, 64, 64, false},
                              HeadCase{4, 1, 256, 512, 64, true}, HeadCase{4, 2, 20, 20, 12, true},
                              HeadCase{2, 9, 96, 96, 64, true}})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("{} heads of {}, {}", one.heads, one.head_dim, name_of(dtype)));
      constexpr int64_t kRows = 27, kFirstQuery = 3, kQueries = 20;
      const int64_t kv = int64_t{one.kv_heads} * one.head_dim;
      PagedCache keys(2, 40, 16, kv, dtype), expected_keys(2, 40, 16, kv, dtype);
      PagedCache values(2, 40, 16, kv, dtype), expected_values(2, 40, 16, kv, dtype);
      const std::vector<PagedSequence> sequences = {keys.sequence(1, 2, 9, 9), keys.sequence(0, 12, 15, 40)};
      Matrix q = Matrix::drawn(1, kQueries, int64_t{one.heads} * one.query_stride), expected_q = q;
      Matrix k = Matrix::drawn(2, kRows, kv), expected_k = k, v = Matrix::drawn(3, kRows, kv);
      Matrix cos = Matrix::drawn(6, 100, one.dim / 2), sin = Matrix::drawn(7, 100, one.dim / 2);
      Weight q_norm(Matrix::drawn(8, 1, one.head_dim), DType::kBF16);
      Weight k_norm(Matrix::drawn(9, 1, one.head_dim), DType::kBF16);
      std::vector<int32_t> positions;
      for (int64_t row = 0; row < kRows; ++row) positions.push_back(static_cast<int32_t>(row * 7 % 100));
      AttentionRowsArgs args{.q = expected_q.view(),
                             .k = expected_k.view(),
                             .v = v.view(),
                             .head_dim = one.head_dim,
                             .query_stride = one.query_stride,
                             .dim = one.dim,
                             .q_positions = std::span(positions).subspan(kFirstQuery, kQueries),
                             .k_positions = positions,
                             .cos = cos.view(),
                             .sin = sin.view(),
                             .sequences = sequences,
                             .page_size = 16,
                             .keys = expected_keys.view(),
                             .values = expected_values.view()};
      if (one.norms) {
        args.q_norm = view_of(q_norm.view().data, DType::kBF16, {one.head_dim});
        args.k_norm = view_of(k_norm.view().data, DType::kBF16, {one.head_dim});
      }
      reference().attention_rows(args);
      args.q = q.view();
      args.k = k.view();
      args.keys = keys.view();
      args.values = values.view();
      HostViews(gpu()).run({&args.q, &args.k, &args.v, &args.q_norm, &args.k_norm, &args.cos, &args.sin,
                            &args.keys, &args.values},
                           [&](Kernels& kernels) { kernels.attention_rows(args); });
      expect_close(q, expected_q, kFloat);
      const double bound = dtype == DType::kBF16 ? 1e-2 : 1e-5;
      for (const auto& [sequence, first, count] : {std::tuple{size_t{1}, 0, 9}, {size_t{0}, 25, 15}})
        for (int64_t token = first; token < first + count; ++token)
          for (int64_t c = 0; c < kv; ++c) {
            const double key = expected_keys.at(sequence, token, c);
            ASSERT_NEAR(keys.at(sequence, token, c), key, bound * std::max(1.0, std::fabs(key))) << token;
            ASSERT_EQ(values.at(sequence, token, c), expected_values.at(sequence, token, c)) << token;
          }
    }
}

TEST_F(FusedOps, PulledRowsAndWhatIsAddedToThem) {
  for (const bool has_plus : {false, true})
    for (const bool has_onto : {false, true})
      for (const int64_t rows : {0, 1, 30}) {
        constexpr int64_t kHidden = 300, kTopK = 4;
        Matrix y = Matrix::drawn(1, rows * kTopK, kHidden), weight = Matrix::drawn(2, rows, kTopK);
        std::vector<int32_t> slots;
        for (int64_t at = 0; at < rows * kTopK; ++at)
          slots.push_back(at % 5 == 3 ? -1 : static_cast<int32_t>(rows * kTopK - 1 - at));
        Matrix out(rows, kHidden), expected(rows, kHidden), plus = Matrix::drawn(3, rows, kHidden, 2);
        Matrix onto = Matrix::drawn(4, rows, kHidden, 1), expected_onto = onto;
        std::vector<PullWeightedArgs::Source> sources = {
            {.y = y.view(), .slot_of = view_of(slots.data(), {rows, kTopK})}};
        PullAddArgs args{.pull = {.sources = sources, .weight = weight.view(), .out = expected.view()}};
        if (has_plus) args.plus = plus.view();
        if (has_onto) args.onto = expected_onto.view();
        reference().pull_add(args);
        args.pull.out = out.view();
        if (has_onto) args.onto = onto.view();
        HostViews(gpu()).run(
            {&sources[0].y, &sources[0].slot_of, &args.pull.weight, &args.pull.out, &args.plus, &args.onto},
            [&](Kernels& kernels) { kernels.pull_add(args); });
        expect_close(out, expected, kFloat);
        expect_close(onto, expected_onto, kFloat);
      }
}

TEST_F(FusedOps, TheLargestAndWhereItFirstStands) {
  for (const int64_t width : {1, 7, 1000, 5000}) {
    Matrix x = Matrix::drawn(5, 6, width, 3);
    const int64_t num_valid = std::max<int64_t>(1, width - 2);
    for (int64_t row = 0; row < 6; ++row) x.at(row, (row * 331 + 4) % num_valid) = 9.0f;
    x.at(1, num_valid / 2) = x.at(1, num_valid - 1) = 9.5f;  // the first of equals
    x.at(2, width - 1) = width == 1 ? 1.0f : 50.0f;          // not valid, unless it is all
    x.at(3, width / 2) = std::nanf("");
    x.at(4, width - 1) = -std::numeric_limits<float>::infinity();
    for (int64_t at = 0; at < width; ++at) x.at(5, at) = -3.0f;  // all equal, below zero
    std::vector<float> values(6, -7), expected_values = values;
    std::vector<int32_t> ids(6, -7), expected_ids = ids;
    LargestArgs args{.x = x.view(),
                     .num_valid = num_valid,
                     .value = view_of(expected_values.data(), {6}),
                     .idx = view_of(expected_ids.data(), {6})};
    reference().largest(args);
    args.value = view_of(values.data(), {6});
    args.idx = view_of(ids.data(), {6});
    HostViews(gpu()).run({&args.x, &args.value, &args.idx}, [&](Kernels& kernels) { kernels.largest(args); });
    EXPECT_EQ(ids, expected_ids) << width;
    EXPECT_EQ(ids[3], -1);
    EXPECT_EQ(ids[4], -1);
    EXPECT_EQ(ids[5], 0);
    for (const size_t row : {0u, 1u, 2u, 5u}) EXPECT_EQ(values[row], expected_values[row]) << width;
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
