// Ops over rows on the GPU against the reference, with poisoned outputs and guard bytes around every view.
#include "tests/gpu/gpu_test.h"

namespace lockstep::kernels::test {
namespace {

constexpr double kFloat = 2e-6;  // float32 sums of some thousand values against double precision

class RowOps : public OnGpu {};

// Sizes that fill no block, one, several; strides that are no multiple of 16 bytes.
struct Size {
  int64_t rows, cols, gap;
};
const std::vector<Size> kSizes = {{0, 8, 0},   {1, 1, 0},     {1, 2048, 0}, {3, 33, 5},
                                  {7, 513, 1}, {130, 128, 4}, {17, 7168, 0}};

TEST_F(RowOps, Embed) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, cols, gap] : kSizes) {
      Weight table(Matrix::drawn(1, 11, cols), dtype, gap);
      std::vector<int32_t> ids;
      for (int64_t row = 0; row < rows; ++row) ids.push_back(static_cast<int32_t>(row % 13) - 1);
      Matrix out(rows, cols, gap), expected(rows, cols, gap);
      EmbedArgs args{.token_ids = ids, .table = table.view(), .out = expected.view()};
      reference().embed(args);
      args.out = out.view();
      HostViews(gpu()).run({&args.table.plain, &args.out}, [&](Kernels& kernels) { kernels.embed(args); });
      expect_close(out, expected, 0);
    }
}

TEST_F(RowOps, RmsNormAlsoInPlace) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, cols, gap] : kSizes) {
      Weight weight(Matrix::drawn(2, 1, cols), dtype);
      TensorView w = weight.view();
      w = view_of(w.data, dtype, {cols});
      Matrix x = Matrix::drawn(3, rows, cols, gap), out(rows, cols, gap), expected(rows, cols, gap);
      RmsNormArgs args{.x = x.view(), .weight = w, .eps = 1e-5f, .out = expected.view()};
      reference().rms_norm(args);
      args.out = out.view();
      HostViews(gpu()).run({&args.x, &args.weight, &args.out},
                           [&](Kernels& kernels) { kernels.rms_norm(args); });
      expect_close(out, expected, kFloat);
      args.out = args.x;
      HostViews(gpu()).run({&args.x, &args.weight, &args.out},
                           [&](Kernels& kernels) { kernels.rms_norm(args); });
      expect_close(x, expected, kFloat);
    }
}

TEST_F(RowOps, AddAndSiluMul) {
  for (const auto& [rows, cols, gap] : kSizes) {
    Matrix x = Matrix::drawn(4, rows, cols, gap), y = Matrix::drawn(5, rows, cols, gap + 1), expected = x;
    reference().add({.x = expected.view(), .y = y.view()});
    AddArgs add{.x = x.view(), .y = y.view()};
    HostViews(gpu()).run({&add.x, &add.y}, [&](Kernels& kernels) { kernels.add(add); });
    expect_close(x, expected, 0);

    for (const Gating& gating : {Gating{}, Gating{.limit = 0.5f, .alpha = 1.702f, .up_shift = 1}}) {
      Matrix out(rows, cols, gap), product(rows, cols, gap);
      SiluMulArgs args{.gate = x.view(), .up = y.view(), .out = product.view(), .gating = gating};
      reference().silu_mul(args);
      args.out = out.view();
      HostViews(gpu()).run({&args.gate, &args.up, &args.out},
                           [&](Kernels& kernels) { kernels.silu_mul(args); });
      expect_close(out, product, kFloat);
    }
  }
}

TEST_F(RowOps, SigmoidMulByValueAndByRow) {
  for (const auto& [rows, cols, gap] : kSizes)
    for (const int64_t gates : {cols, int64_t{1}}) {
      Matrix x = Matrix::drawn(4, rows, cols, gap), expected = x, gate = Matrix::drawn(5, rows, gates, 3);
      reference().sigmoid_mul({.x = expected.view(), .gate = gate.view()});
      SigmoidMulArgs args{.x = x.view(), .gate = gate.view()};
      HostViews(gpu()).run({&args.x, &args.gate}, [&](Kernels& kernels) { kernels.sigmoid_mul(args); });
      expect_close(x, expected, kFloat);
    }
}

// Two sequences, one that starts and one that goes on; rows 0 and 12 are padding.
TEST_F(RowOps, LayersThatKeepAStateASequence) {
  constexpr int64_t kRows = 13, kChannels = 40, kTaps = 4, kSlots = 3;
  const std::vector<PagedSequence> sequences = {{.first_row = 1, .num_rows = 9, .context = 9, .slot = 2},
                                                {.first_row = 10, .num_rows = 2, .context = 30, .slot = 0}};
  Matrix x = Matrix::drawn(80, kRows, kChannels), weight = Matrix::drawn(81, kTaps, kChannels);
  Matrix state = Matrix::drawn(82, kSlots * (kTaps - 1), kChannels), expected_state = state;
  Matrix out(kRows, kChannels), expected(kRows, kChannels);
  const auto windows = [](Matrix& of) {
    return view_of(of.view().data, DType::kF32, {kSlots, kTaps - 1, kChannels});
  };
  CausalConvArgs conv{.x = x.view(),
                      .weight = weight.view(),
                      .sequences = sequences,
                      .state = windows(expected_state),
                      .out = expected.view()};
  reference().causal_conv(conv);
  conv.state = windows(state);
  conv.out = out.view();
  HostViews(gpu()).run({&conv.x, &conv.weight, &conv.state, &conv.out},
                       [&](Kernels& kernels) { kernels.causal_conv(conv); });
  expect_close(out, expected, kFloat);
  expect_close(state, expected_state, 0);

  Matrix heads = Matrix::drawn(83, kRows, 5 * 24, 8), normed = heads;
  reference().l2_norm({.x = normed.cube(5), .eps = 1e-6f, .scale = 0.4f});
  L2NormArgs norm{.x = heads.cube(5), .eps = 1e-6f, .scale = 0.4f};
  HostViews(gpu()).run({&norm.x}, [&](Kernels& kernels) { kernels.l2_norm(norm); });
  expect_close(heads, normed, kFloat);
}

TEST_F(RowOps, GatedDeltaRule) {
  constexpr int64_t kRows = 13, kKeys = 3, kHeads = 5, kKey = 24, kValue = 40, kSlots = 3;
  const std::vector<PagedSequence> sequences = {{.first_row = 1, .num_rows = 9, .context = 9, .slot = 2},
                                                {.first_row = 10, .num_rows = 2, .context = 30, .slot = 0}};
  Matrix a = Matrix::drawn(90, kRows, kHeads), b = Matrix::drawn(91, kRows, kHeads), decay(kRows, kHeads);
  Matrix beta(kRows, kHeads), expected_decay(kRows, kHeads), expected_beta(kRows, kHeads);
  Weight a_log(Matrix::drawn(92, 1, kHeads), DType::kBF16), bias(Matrix::drawn(93, 1, kHeads), DType::kF32);
  DeltaGatesArgs gates{.a = a.view(),
                       .b = b.view(),
                       .a_log = view_of(a_log.view().data, DType::kBF16, {kHeads}),
                       .dt_bias = view_of(bias.view().data, DType::kF32, {kHeads}),
                       .decay = expected_decay.view(),
                       .beta = expected_beta.view()};
  reference().delta_gates(gates);
  gates.decay = decay.view();
  gates.beta = beta.view();
  HostViews(gpu()).run({&gates.a, &gates.b, &gates.a_log, &gates.dt_bias, &gates.decay, &gates.beta},
                       [&](Kernels& kernels) { kernels.delta_gates(gates); });
  expect_close(decay, expected_decay, kFloat);
  expect_close(beta, expected_beta, kFloat);

  Matrix q = Matrix::drawn(94, kRows, kKeys * kKey), k = Matrix::drawn(95, kRows, kKeys * kKey);
  Matrix v = Matrix::drawn(96, kRows, kHeads * kValue), out(kRows, kHeads * kValue),
         expected(kRows, kHeads * kValue);
  reference().l2_norm({.x = k.cube(kKeys)});
  Matrix state = Matrix::drawn(97, kSlots * kHeads * kKey, kValue), expected_state = state;
  const auto states = [](Matrix& of) {
    return view_of(of.view().data, DType::kF32, {kSlots, kHeads, kKey, kValue});
  };
  GatedDeltaArgs args{.q = q.cube(kKeys),
                      .k = k.cube(kKeys),
                      .v = v.cube(kHeads),
                      .decay = decay.view(),
                      .beta = beta.view(),
                      .sequences = sequences,
                      .group = 2,
                      .first_in_group = 1,
                      .state = states(expected_state),
                      .out = expected.cube(kHeads)};
  reference().gated_delta(args);
  args.state = states(state);
  args.out = out.cube(kHeads);
  HostViews(gpu()).run({&args.q, &args.k, &args.v, &args.decay, &args.beta, &args.state, &args.out},
                       [&](Kernels& kernels) { kernels.gated_delta(args); });
  expect_close(out, expected, kFloat);
  expect_close(state, expected_state, kFloat);
}

TEST_F(RowOps, RopeTurnsTheNamedPartOfEveryHead) {
  constexpr int kHeads = 5, kStride = 24, kOffset = 6, kDim = 12;
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalf})
    for (const int64_t rows : {0, 1, 37}) {
      Matrix cos = Matrix::drawn(6, 100, kDim / 2), sin = Matrix::drawn(7, 100, kDim / 2);
      std::vector<int32_t> positions;
      for (int64_t row = 0; row < rows; ++row) positions.push_back(static_cast<int32_t>(row * 7 % 100));
      Matrix x = Matrix::drawn(8, rows, kHeads * kStride, 3), expected = x;
      RopeArgs args{.x = expected.view(),
                    .num_heads = kHeads,
                    .head_stride = kStride,
                    .offset = kOffset,
                    .dim = kDim,
                    .positions = positions,
                    .cos = cos.view(),
                    .sin = sin.view(),
                    .pairing = pairing};
      reference().rope(args);
      args.x = x.view();
      HostViews(gpu()).run({&args.x, &args.cos, &args.sin}, [&](Kernels& kernels) { kernels.rope(args); });
      expect_close(x, expected, 1e-7);
    }
}

TEST_F(RowOps, CopiesAndSumsOfSeveralSources) {
  for (const int64_t cols : {1, 20, 256}) {
    std::vector<Matrix> sources;
    std::vector<TensorView> views;
    for (uint64_t s = 0; s < 5; ++s)
      sources.push_back(Matrix::drawn(20 + s, 9, cols, static_cast<int64_t>(s % 3)));
    for (Matrix& source : sources) views.push_back(source.view());
    const std::vector<RowPiece> tiled = {{.source = 3, .src_row = 2, .dst_row = 0, .num_rows = 4},
                                         {.source = 0, .src_row = 8, .dst_row = 4, .num_rows = 1},
                                         {.source = 4, .src_row = 0, .dst_row = 5, .num_rows = 0},
                                         {.source = 4, .src_row = 1, .dst_row = 5, .num_rows = 2}};
    const std::vector<RowPiece> whole = {{.src_row = 1, .dst_row = 0, .num_rows = 7}};
    for (const auto& pieces : {tiled, whole}) {
      Matrix out(7, cols, 1), expected(7, cols, 1), sum(7, cols), expected_sum(7, cols);
      reference().copy_rows({.sources = views, .pieces = pieces, .out = expected.view()});
      reference().sum_rows({.addends = views, .pieces = pieces, .out = expected_sum.view()});
      std::vector<TensorView> moved = views;
      TensorView out_view = out.view(), sum_view = sum.view();
      std::vector<TensorView*> all = {&out_view, &sum_view};
      for (TensorView& view : moved) all.push_back(&view);
      HostViews(gpu()).run(all, [&](Kernels& kernels) {
        kernels.copy_rows({.sources = moved, .pieces = pieces, .out = out_view});
        kernels.sum_rows({.addends = moved, .pieces = pieces, .out = sum_view});
      });
      expect_close(out, expected, 0);
      expect_close(sum, expected_sum, 0);
    }
  }
}

TEST_F(RowOps, SumAddNorm) {
  for (const auto& [rows, cols, gap] : kSizes)
    for (const size_t members : {1u, 4u}) {
      std::vector<Matrix> addends;
      std::vector<TensorView> views;
      for (size_t m = 0; m < members; ++m) addends.push_back(Matrix::drawn(30 + m, rows, cols, gap));
      for (Matrix& addend : addends) views.push_back(addend.view());
      Weight weight(Matrix::drawn(2, 1, cols), DType::kBF16);
      Matrix residual = Matrix::drawn(9, rows, cols, gap), kept = residual;
      Matrix out(rows, cols), expected(rows, cols);
      const TensorView w = view_of(weight.view().data, DType::kBF16, {cols});
      SumAddNormArgs args{.addends = views, .residual = kept.view(), .weight = w, .out = expected.view()};
      reference().sum_add_norm(args);
      std::vector<TensorView> moved = views;
      args = {.addends = moved, .residual = residual.view(), .weight = w, .out = out.view()};
      std::vector<TensorView*> all = {&args.residual, &args.weight, &args.out};
      for (TensorView& view : moved) all.push_back(&view);
      HostViews(gpu()).run(all, [&](Kernels& kernels) { kernels.sum_add_norm(args); });
      expect_close(residual, kept, 1e-7);
      expect_close(out, expected, kFloat);
    }
}

TEST_F(RowOps, CacheRowsAreWrittenAndReadAsOnTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int page_size : {1, 16}) {
      PagedCache cache(2, 40, page_size, 21, dtype), expected(2, 40, page_size, 21, dtype);
      Matrix x = Matrix::drawn(10, 30, 21, 2);
      const std::vector<PagedSequence> sequences = {cache.sequence(1, 2, 9, 9),
                                                    cache.sequence(0, 12, 17, 40)};
      CacheWriteArgs args{
          .x = x.view(), .sequences = sequences, .page_size = page_size, .cache = expected.view()};
      reference().cache_write(args);
      args.cache = cache.view();
      HostViews(gpu()).run({&args.x, &args.cache}, [&](Kernels& kernels) { kernels.cache_write(args); });
      for (int64_t token = 0; token < 17; ++token)
        for (int64_t c = 0; c < 21; ++c)
          ASSERT_EQ(cache.at(0, 23 + token, c), expected.at(0, 23 + token, c)) << token;
      CacheReadArgs load{
          .sequence = cache.sequence(1, 0, 0, 9), .page_size = page_size, .cache = cache.view()};
      Matrix loaded(9, 21), expected_rows(9, 21);
      load.out = expected_rows.view();
      reference().cache_read(load);
      load.out = loaded.view();
      HostViews(gpu()).run({&load.cache, &load.out}, [&](Kernels& kernels) { kernels.cache_read(load); });
      expect_close(loaded, expected_rows, 0);
    }
}

}  // namespace
}  // namespace lockstep::kernels::test
