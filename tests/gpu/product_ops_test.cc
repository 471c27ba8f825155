// Products, experts, routing and attention on the GPU against the reference.
#include "tests/gpu/gpu_test.h"

namespace lockstep::kernels::test {
namespace {

constexpr double kFloat = 5e-6;    // float32 throughout
constexpr double kWhole = 5e-5;    // the input in two bf16 parts: 16 bits of it
constexpr double kRounded = 4e-3;  // the input rounded to bf16, 8 bits

class ProductOps : public OnGpu {};

double bound_of(DType weight, LinearArgs::Inputs inputs) {
  if (weight == DType::kF32) return kFloat;
  return inputs == LinearArgs::Inputs::kWhole ? kWhole : kRounded;
}

struct Shape {
  int64_t rows, in, out;
};
const std::vector<Shape> kShapes = {{0, 16, 8},    {1, 64, 32},     {1, 2048, 512}, {5, 96, 33},  {3, 7, 5},
                                    {33, 256, 80}, {130, 512, 128}, {16, 40, 24},   {257, 128, 9}};

TEST_F(ProductOps, LinearWithAndWithoutBias) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto inputs : {LinearArgs::Inputs::kMayRound, LinearArgs::Inputs::kWhole})
      for (const auto& [rows, in, out_width] : kShapes)
        for (const int64_t gap : {0, 8}) {
          SCOPED_TRACE(
              fmt::format("{} rows, {} to {}, gap {}, {}", rows, in, out_width, gap, name_of(dtype)));
          Matrix x = Matrix::drawn(1, rows, in, gap), out(rows, out_width, gap),
                 expected(rows, out_width, gap);
          Weight w(Matrix::drawn(2, out_width, in), dtype, gap), bias(Matrix::drawn(3, 1, out_width), dtype);
          LinearArgs args{.x = x.view(), .w = w.view(), .out = expected.view(), .inputs = inputs};
          if (gap == 8) args.bias = view_of(bias.view().data, dtype, {out_width});
          reference().linear(args);
          args.out = out.view();
          HostViews(gpu()).run({&args.x, &args.w.plain, &args.out, &args.bias},
                               [&](Kernels& kernels) { kernels.linear(args); });
          expect_close(out, expected, bound_of(dtype, inputs));
        }
}

TEST_F(ProductOps, Matmul) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, in, out_width] : kShapes) {
      SCOPED_TRACE(fmt::format("{} rows, {} to {}, {}", rows, in, out_width, name_of(dtype)));
      Matrix x = Matrix::drawn(4, rows, in, 4), out(rows, out_width, 4), expected(rows, out_width, 4);
      Weight w(Matrix::drawn(5, in, out_width), dtype, 3);
      MatmulArgs args{.x = x.view(), .w = w.view(), .out = expected.view()};
      reference().matmul(args);
      args.out = out.view();
      HostViews(gpu()).run({&args.x, &args.w.plain, &args.out},
                           [&](Kernels& kernels) { kernels.matmul(args); });
      expect_close(out, expected, bound_of(dtype, LinearArgs::Inputs::kMayRound));
    }
}

// Uneven experts, some empty; more slots than are in use, as where the host does not know how many are.
TEST_F(ProductOps, GroupedFfn) {
  struct Case {
    int64_t hidden, inter;
    std::vector<int32_t> start;
    int64_t unused;
  };
  const std::vector<Case> cases = {{64, 32, {0, 3, 3, 4, 12}, 0},
                                   {256, 96, {0, 40, 41, 41, 200}, 24},
                                   {40, 24, {0, 1, 9, 9, 10}, 3},
                                   {2048, 768, {0, 1, 2, 4, 8}, 0},
                                   {256, 96, {0, 300, 300, 307}, 50},
                                   {128, 64, {0, 128, 640}, 0},
                                   {1024, 160, {0, 13, 13, 40, 41}, 2},
                                   {512, 96, {0, 33, 60, 60, 80}, 1},
                                   {4096, 64, {0, 9, 10, 30}, 0},
                                   {64, 32, {0, 0, 0}, 5},
                                   {64, 32, {0}, 0}};
  for (const auto& [dtype, with_biases] :
       {std::pair{DType::kF32, false}, {DType::kBF16, false}, {DType::kF32, true}, {DType::kBF16, true}})
    for (const Case& one : cases) {
      const int64_t slots = one.start.back(), capacity = slots + one.unused;
      SCOPED_TRACE(fmt::format("{} slots of {}, {} wide, {}", slots, one.hidden, one.inter, name_of(dtype)));
      std::vector<Weight> gate, up, down;
      for (uint64_t e = 0; e + 1 < one.start.size(); ++e) {
        gate.emplace_back(Matrix::drawn(100 + e, one.inter, one.hidden), dtype);
        up.emplace_back(Matrix::drawn(200 + e, one.inter, one.hidden), dtype);
        down.emplace_back(Matrix::drawn(300 + e, one.hidden, one.inter), dtype);
      }
      std::vector<WeightView> gates, ups, downs;
      std::vector<TensorView> gate_biases, up_biases, down_biases;
      std::vector<Weight> biases;
      for (size_t e = 0; e < gate.size(); ++e) {
        gates.push_back(gate[e].view());
        ups.push_back(up[e].view());
        downs.push_back(down[e].view());
        for (const int64_t width : {one.inter, one.inter, one.hidden})
          biases.emplace_back(Matrix::drawn(400 + biases.size(), 1, width), dtype);
      }
      for (size_t e = 0; with_biases && e < gate.size(); ++e) {
        const auto bias = [&](size_t at, int64_t width) {
          return view_of(biases[3 * e + at].view().data, dtype, {width});
        };
        gate_biases.push_back(bias(0, one.inter));
        up_biases.push_back(bias(1, one.inter));
        down_biases.push_back(e == 1 ? TensorView{} : bias(2, one.hidden));  // another shard owes it
      }
      const Gating gating = with_biases ? Gating{.limit = 1.5f, .alpha = 1.702f, .up_shift = 1} : Gating{};
      std::vector<int32_t> start = one.start;
      const TensorView starts = view_of(start.data(), {static_cast<int64_t>(start.size())});
      Matrix x = Matrix::drawn(6, slots, one.hidden), scratch(slots, 2 * one.inter),
             expected(slots, one.hidden);
      reference().grouped_ffn({.x = x.view(),
                               .expert_start = starts,
                               .gate = gates,
                               .up = ups,
                               .down = downs,
                               .gate_bias = gate_biases,
                               .up_bias = up_biases,
                               .down_bias = down_biases,
                               .gating = gating,
                               .scratch = scratch.view(),
                               .y = expected.view()});
      Matrix wide_x = Matrix::drawn(6, capacity, one.hidden), wide_scratch(capacity, 2 * one.inter);
      Matrix wide_y(capacity, one.hidden);
      auto moved_gates = gates, moved_ups = ups, moved_downs = downs;
      auto moved_gate_biases = gate_biases, moved_up_biases = up_biases, moved_down_biases = down_biases;
      GroupedFfnArgs args{.x = wide_x.view(),
                          .expert_start = starts,
                          .gate = moved_gates,
                          .up = moved_ups,
                          .down = moved_downs,
                          .gate_bias = moved_gate_biases,
                          .up_bias = moved_up_biases,
                          .down_bias = moved_down_biases,
                          .gating = gating,
                          .scratch = wide_scratch.view(),
                          .y = wide_y.view()};
      std::vector<TensorView*> all = {&args.x, &args.expert_start, &args.scratch, &args.y};
      for (auto* views : {&moved_gates, &moved_ups, &moved_downs})
        for (WeightView& view : *views) all.push_back(&view.plain);
      for (auto* views : {&moved_gate_biases, &moved_up_biases, &moved_down_biases})
        for (TensorView& view : *views) all.push_back(&view);
      HostViews(gpu()).run(all, [&](Kernels& kernels) { kernels.grouped_ffn(args); });
      Matrix y(slots, one.hidden);
      for (int64_t row = 0; row < slots; ++row)
        for (int64_t c = 0; c < one.hidden; ++c) y.at(row, c) = wide_y.at(row, c);
      expect_close(y, expected, dtype == DType::kF32 ? kFloat : 2 * kRounded);
    }
}

TEST_F(ProductOps, RouteChoosesTheSameExpertsAndWeighsThem) {
  struct Case {
    int64_t experts;
    int top_k, groups, top_groups;
    Scoring scoring;
    RouteArgs::Weights weights;
    RouteArgs::GroupScore group_score = RouteArgs::GroupScore::kTwoBest;
  };
  using enum RouteArgs::Weights;
  for (const Case& one :
       {Case{16, 4, 1, 1, Scoring::kSoftmax, kNormalised}, Case{128, 8, 1, 1, Scoring::kSoftmax, kAsScored},
        Case{256, 8, 8, 4, Scoring::kSigmoid, kNormalised}, Case{16, 2, 4, 2, Scoring::kSigmoid, kAsScored},
        Case{64, 6, 8, 3, Scoring::kSoftmax, kAsScored, RouteArgs::GroupScore::kBest},
        Case{3, 3, 3, 3, Scoring::kSoftmax, kNormalised}})
    for (const int64_t rows : {0, 1, 70}) {
      Matrix logits = Matrix::drawn(static_cast<uint64_t>(rows + one.experts), rows, one.experts, 2);
      if (rows > 4) {
        for (int64_t e = 0; e < one.experts; ++e) logits.at(3, e) = 0.25f;  // ties go to the smaller
        logits.at(4, 1) = std::nanf("");
      }
      Matrix bias = Matrix::drawn(12, 1, one.experts);
      std::vector<uint8_t> valid(static_cast<size_t>(rows), 1);
      if (rows > 9) valid[9] = 0;
      Matrix weight(rows, one.top_k), expected_weight(rows, one.top_k);
      std::vector<int32_t> idx(static_cast<size_t>(rows * one.top_k), -7), expected_idx = idx;
      RouteArgs args{.logits = logits.view(),
                     .bias = view_of(bias.view().data, DType::kF32, {one.experts}),
                     .valid = valid,
                     .top_k = one.top_k,
                     .num_groups = one.groups,
                     .top_groups = one.top_groups,
                     .group_score = one.group_score,
                     .scoring = one.scoring,
                     .weights = one.weights,
                     .scale = 2.5f,
                     .expert_idx = view_of(expected_idx.data(), {rows, one.top_k}),
                     .weight = expected_weight.view()};
      reference().route(args);
      args.expert_idx = view_of(idx.data(), {rows, one.top_k});
      args.weight = weight.view();
      HostViews(gpu()).run({&args.logits, &args.bias, &args.expert_idx, &args.weight},
                           [&](Kernels& kernels) { kernels.route(args); });
      for (int64_t row = 0; row < rows; ++row) {
        if (row == 4) continue;  // of NaN only that it reaches the weights
        for (int64_t k = 0; k < one.top_k; ++k) {
          EXPECT_EQ(idx[static_cast<size_t>(row * one.top_k + k)],
                    expected_idx[static_cast<size_t>(row * one.top_k + k)])
              << "row " << row << ", choice " << k << " of " << one.experts;
          EXPECT_NEAR(weight.at(row, k), expected_weight.at(row, k), 2e-6);
        }
      }
    }
}

TEST_F(ProductOps, RowsGoToExpertsAndBackAsOnTheCpu) {
  constexpr int64_t kHidden = 20, kTopK = 3, kFirst = 2, kLocal = 4;
  for (const int64_t rows : {0, 1, 300, 500}) {
    std::vector<Matrix> x;
    std::vector<std::vector<int32_t>> idx, slots, expected_slots;
    for (uint64_t s = 0; s < 3; ++s) {
      const int64_t own = s == 1 ? 0 : rows;
      x.push_back(Matrix::drawn(40 + s, own, kHidden));
      idx.emplace_back();
      for (int64_t at = 0; at < own * kTopK; ++at)
        idx.back().push_back(static_cast<int32_t>((at * 7 + static_cast<int64_t>(s)) % 9) - 1);
      slots.emplace_back(idx.back().size(), -9);
    }
    expected_slots = slots;
    const int64_t capacity = 2 * rows * kTopK;
    std::vector<int32_t> start(kLocal + 1, -5), expected_start = start;
    Matrix out(capacity, kHidden), expected(capacity, kHidden);
    const auto sources_of = [&](std::vector<std::vector<int32_t>>& slot_of) {
      std::vector<PlaceSlotsArgs::Source> sources;
      for (size_t s = 0; s < 3; ++s)
        sources.push_back({.x = x[s].view(),
                           .expert_idx = view_of(idx[s].data(), {x[s].rows(), kTopK}),
                           .slot_of = view_of(slot_of[s].data(), {x[s].rows(), kTopK})});
      return sources;
    };
    auto sources = sources_of(expected_slots);
    PlaceSlotsArgs args{.sources = sources,
                        .first_expert = kFirst,
                        .expert_start = view_of(expected_start.data(), {kLocal + 1}),
                        .out = expected.view()};
    reference().place_slots(args);
    auto moved = sources_of(slots);
    args = {.sources = moved,
            .first_expert = kFirst,
            .expert_start = view_of(start.data(), {kLocal + 1}),
            .out = out.view()};
    std::vector<TensorView*> all = {&args.expert_start, &args.out};
    for (auto& source : moved)
      for (TensorView* view : {&source.x, &source.expert_idx, &source.slot_of}) all.push_back(view);
    HostViews(gpu()).run(all, [&](Kernels& kernels) { kernels.place_slots(args); });
    EXPECT_EQ(start, expected_start);
    EXPECT_EQ(slots, expected_slots);
    for (int64_t slot = 0; slot < start.back(); ++slot)
      EXPECT_TRUE(out.row_equals(slot, expected, slot)) << slot;

    Matrix weight = Matrix::drawn(50, rows, kTopK), sum(rows, kHidden), expected_sum(rows, kHidden);
    Matrix y = Matrix::drawn(51, capacity, kHidden), other_y = Matrix::drawn(52, capacity, kHidden);
    std::vector<int32_t> nowhere(static_cast<size_t>(rows * kTopK), -1);
    std::vector<PullWeightedArgs::Source> pulled = {
        {.y = y.view(), .slot_of = view_of(slots[0].data(), {rows, kTopK})},
        {.y = other_y.view(), .slot_of = view_of(nowhere.data(), {rows, kTopK})}};
    PullWeightedArgs pull{.sources = pulled, .weight = weight.view(), .out = expected_sum.view()};
    reference().pull_weighted(pull);
    pull.out = sum.view();
    std::vector<TensorView*> views = {&pull.weight, &pull.out};
    for (auto& source : pulled)
      for (TensorView* view : {&source.y, &source.slot_of}) views.push_back(view);
    HostViews(gpu()).run(views, [&](Kernels& kernels) { kernels.pull_weighted(pull); });
    expect_close(sum, expected_sum, kFloat);
  }
}

// Decode rows, chunks, padding and long contexts of several splits, with a rank's heads that begin in the
// middle of a group.
TEST_F(ProductOps, GroupedQueryAttention) {
  struct Case {
    int heads, group, first_in_group, head_dim, window;
    bool sinks = false;
  };
  // The first two go to tensor cores where the cache is bf16.
  for (const Case& one :
       {Case{16, 8, 0, 128, 0}, Case{6, 3, 0, 64, 0}, Case{8, 8, 0, 128, 11}, Case{5, 2, 1, 20, 0},
        Case{4, 1, 0, 64, 9}, Case{32, 16, 0, 40, 0}, Case{2, 2, 0, 256, 0}, Case{16, 8, 0, 128, 0, true},
        Case{5, 2, 1, 20, 0, true}, Case{8, 8, 0, 64, 128, true}})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(
          fmt::format("{} heads by {} of {}, {}", one.heads, one.group, one.head_dim, name_of(dtype)));
      const int64_t kv = ((one.first_in_group + one.heads - 1) / one.group + 1) * one.head_dim;
      PagedCache k(4, 700, 16, kv, dtype), v(4, 700, 16, kv, dtype);
      Matrix keys = Matrix::drawn(61, 700, kv), values = Matrix::drawn(62, 700, kv);
      for (size_t s = 0; s < 4; ++s) {
        const std::vector<PagedSequence> whole = {k.sequence(s, 0, 700, 700)};
        reference().cache_write({.x = keys.view(), .sequences = whole, .page_size = 16, .cache = k.view()});
        reference().cache_write({.x = values.view(), .sequences = whole, .page_size = 16, .cache = v.view()});
      }
      const std::vector<PagedSequence> sequences = {k.sequence(0, 1, 1, 1), k.sequence(1, 2, 1, 700),
                                                    k.sequence(2, 3, 35, 270), k.sequence(3, 39, 1, 257)};
      const int64_t width = int64_t{one.heads} * one.head_dim;
      Matrix q = Matrix::drawn(63, 41, width, 4), out(41, width), expected(41, width);
      GqaArgs args{.q = q.cube(one.heads),
                   .sequences = sequences,
                   .page_size = 16,
                   .k = k.view(),
                   .v = v.view(),
                   .group = one.group,
                   .first_in_group = one.first_in_group,
                   .scale = 0.3f,
                   .window = one.window,
                   .out = expected.cube(one.heads)};
      Weight sinks(Matrix::drawn(64, 1, one.heads), dtype);
      if (one.sinks) args.sinks = view_of(sinks.view().data, dtype, {one.heads});
      reference().gqa(args);
      args.out = out.cube(one.heads);
      HostViews(gpu()).run({&args.q, &args.k, &args.v, &args.sinks, &args.out},
                           [&](Kernels& kernels) { kernels.gqa(args); });
      const bool rounds = dtype == DType::kBF16 && one.head_dim % 64 == 0 && one.head_dim <= 128 &&
                          one.window == 0 && !one.sinks;
      expect_close(out, expected, rounds ? kRounded : kFloat);
    }
}

TEST_F(ProductOps, LatentAttentionAbsorbedAndExpanded) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [heads, latent, rope] : {std::tuple{3, 24, 10}, {16, 512, 64}, {20, 128, 32}}) {
      SCOPED_TRACE(fmt::format("{} heads, latent {}, {}", heads, latent, name_of(dtype)));
      const int width = latent + rope;
      PagedCache cache(2, 520, 16, width, dtype);
      Matrix rows = Matrix::drawn(71, 520, width);
      for (size_t s = 0; s < 2; ++s) {
        const std::vector<PagedSequence> whole = {cache.sequence(s, 0, 520, 520)};
        reference().cache_write(
            {.x = rows.view(), .sequences = whole, .page_size = 16, .cache = cache.view()});
      }
      const std::vector<PagedSequence> sequences = {cache.sequence(0, 0, 1, 520), cache.sequence(1, 2, 1, 3)};
      Matrix q = Matrix::drawn(72, 4, int64_t{heads} * width), out(4, int64_t{heads} * latent);
      Matrix expected(4, int64_t{heads} * latent);
      MlaAbsorbedArgs args{.q = q.cube(heads),
                           .sequences = sequences,
                           .page_size = 16,
                           .cache = cache.view(),
                           .latent = latent,
                           .scale = 0.2f,
                           .out = expected.cube(heads)};
      reference().mla_absorbed(args);
      args.out = out.cube(heads);
      HostViews(gpu()).run({&args.q, &args.cache, &args.out},
                           [&](Kernels& kernels) { kernels.mla_absorbed(args); });
      expect_close(out, expected, kFloat);
    }
  for (const int64_t rows : {0, 1, 33}) {
    constexpr int kHeads = 5, kNope = 24, kRope = 8, kValue = 40;
    constexpr int64_t kContext = 300;
    Matrix q = Matrix::drawn(73, rows, kHeads * (kNope + kRope)),
           kv = Matrix::drawn(74, kContext, kHeads * (kNope + kValue));
    Matrix k_rope = Matrix::drawn(75, kContext, kRope, 24), out(rows, kHeads * kValue),
           expected(rows, kHeads * kValue);
    MlaExpandedArgs args{.q = q.cube(kHeads),
                         .kv = kv.cube(kHeads),
                         .k_rope = k_rope.view(),
                         .nope = kNope,
                         .scale = 0.2f,
                         .out = expected.cube(kHeads)};
    reference().mla_expanded(args);
    args.out = out.cube(kHeads);
    HostViews(gpu()).run({&args.q, &args.kv, &args.k_rope, &args.out},
                         [&](Kernels& kernels) { kernels.mla_expanded(args); });
    expect_close(out, expected, kFloat);
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
