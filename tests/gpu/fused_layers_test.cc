// Ops that stand for most of a layer, on the GPU against the reference's unfused ones: single rows through
// attention, the router, and few rows through their experts.
#include "tests/gpu/gpu_test.h"

namespace lockstep::kernels::test {
namespace {

constexpr double kWhole = 5e-5, kRounded = 6e-3;

struct Heads {
  int heads, kv_heads, head_dim, query_stride;
  bool norms;
};

class FusedLayers : public OnGpu {
 protected:
  // A row of every sequence and `drafts` that follow it, each an entry of its own, and a row of padding.
  void expect_single_rows(const Heads& of, const std::vector<int32_t>& contexts, int32_t drafts);
};

void FusedLayers::expect_single_rows(const Heads& of, const std::vector<int32_t>& contexts, int32_t drafts) {
  SCOPED_TRACE(fmt::format("{} heads of {}, {} sequences, {} tokens, {} drafts", of.heads, of.head_dim,
                           contexts.size(), contexts[0], drafts));
  const auto count = static_cast<int32_t>(contexts.size());
  const int64_t rows = count * (drafts + 1) + 1, kv = int64_t{of.kv_heads} * of.head_dim;
  const int32_t longest = *std::max_element(contexts.begin(), contexts.end()) + drafts;
  PagedCache keys(count, longest, 16, kv, DType::kBF16), values(count, longest, 16, kv, DType::kBF16);
  std::vector<PagedSequence> sequences;
  std::vector<int32_t> positions;
  for (int32_t s = 0; s < count; ++s) {
    const int32_t before = contexts[static_cast<size_t>(s)] - 1;
    const std::vector<PagedSequence> cached = {keys.sequence(static_cast<size_t>(s), 0, before, before)};
    Matrix old_keys = Matrix::drawn(40 + static_cast<uint64_t>(s), before, kv),
           old_values = Matrix::drawn(140 + static_cast<uint64_t>(s), before, kv);
    reference().cache_write(
        {.x = old_keys.view(), .sequences = cached, .page_size = 16, .cache = keys.view()});
    reference().cache_write(
        {.x = old_values.view(), .sequences = cached, .page_size = 16, .cache = values.view()});
    for (int32_t draft = 0; draft <= drafts; ++draft) {
      const auto row = static_cast<int32_t>(positions.size());
      sequences.push_back(keys.sequence(static_cast<size_t>(s), row, 1, before + draft + 1));
      positions.push_back(before + draft);
    }
  }
  positions.push_back(0);
  PagedCache expected_keys = keys, expected_values = values;
  Matrix q = Matrix::drawn(1, rows, int64_t{of.heads} * of.query_stride), expected_q = q;
  Matrix k = Matrix::drawn(2, rows, kv), expected_k = k, v = Matrix::drawn(3, rows, kv);
  const int64_t half = of.head_dim / 2;
  Matrix cos = Matrix::drawn(6, longest, half), sin = Matrix::drawn(7, longest, half);
  Weight q_norm(Matrix::drawn(8, 1, of.head_dim), DType::kBF16),
      k_norm(Matrix::drawn(9, 1, of.head_dim), DType::kBF16);
  Matrix out(rows, int64_t{of.heads} * of.head_dim), expected(rows, int64_t{of.heads} * of.head_dim);
  const auto by_head = [&](Matrix& x, int64_t stride) {
    TensorView cube = view_of(x.view().data, DType::kF32, {rows, of.heads, of.head_dim});
    cube.stride = {x.view().stride[0], stride, 1};
    return cube;
  };
  const auto args_of = [&](Matrix& queries, Matrix& key_rows, PagedCache& key_cache, PagedCache& value_cache,
                           Matrix& to) {
    AttendArgs args{.rows = {.q = queries.view(),
                             .k = key_rows.view(),
                             .v = v.view(),
                             .head_dim = of.head_dim,
                             .query_stride = of.query_stride,
                             .dim = of.head_dim,
                             .q_positions = positions,
                             .k_positions = positions,
                             .cos = cos.view(),
                             .sin = sin.view(),
                             .sequences = sequences,
                             .page_size = 16,
                             .keys = key_cache.view(),
                             .values = value_cache.view()},
                    .gqa = {.q = by_head(queries, of.query_stride),
                            .sequences = sequences,
                            .page_size = 16,
                            .k = key_cache.view(),
                            .v = value_cache.view(),
                            .group = of.heads / of.kv_heads,
                            .scale = 0.09f,
                            .out = by_head(to, of.head_dim)}};
    if (of.norms) {
      args.rows.q_norm = view_of(q_norm.view().data, DType::kBF16, {of.head_dim});
      args.rows.k_norm = view_of(k_norm.view().data, DType::kBF16, {of.head_dim});
    }
    return args;
  };
  reference().attend(args_of(expected_q, expected_k, expected_keys, expected_values, expected));
  AttendArgs args = args_of(q, k, keys, values, out);
  HostViews(gpu()).run({&args.rows.q, &args.rows.k, &args.rows.v, &args.rows.q_norm, &args.rows.k_norm,
                        &args.rows.cos, &args.rows.sin, &args.rows.keys, &args.rows.values, &args.gqa.q,
                        &args.gqa.k, &args.gqa.v, &args.gqa.out},
                       [&](Kernels& kernels) { kernels.attend(args); });
  expect_close(out, expected, 1.5e-2);
  for (size_t s = 0; s < contexts.size(); ++s)
    for (int64_t token = 0; token < contexts[s] + drafts; ++token)
      for (int64_t c = 0; c < kv; ++c) {
        const double key = expected_keys.at(s, token, c);
        ASSERT_NEAR(keys.at(s, token, c), key, 1e-2 * std::max(1.0, std::fabs(key))) << s << " " << token;
        ASSERT_EQ(values.at(s, token, c), expected_values.at(s, token, c)) << s << " " << token;
      }
  for (int64_t row = 0; row < rows; ++row)  // what is behind the turned values of a head stays
    for (int64_t c = 0; c < q.cols(); ++c) {
      if (c % of.query_stride < of.head_dim) continue;
      ASSERT_EQ(q.at(row, c), expected_q.at(row, c));
    }
}

// Contexts of one token, of whole and broken blocks, and beyond what a cluster takes; heads whose values
// behind head_dim are a gate's.
TEST_F(FusedLayers, SingleRowsThroughAttention) {
  const std::vector<std::vector<int32_t>> batches = {
      {1}, {2}, {64}, {65}, {513}, {1025}, {2100}, {1, 64, 700, 129}, std::vector<int32_t>(70, 33)};
  for (const Heads& of : {Heads{8, 2, 128, 128, true}, Heads{32, 2, 64, 64, true},
                          Heads{4, 4, 128, 256, true}, Heads{3, 1, 64, 64, false}, Heads{2, 2, 96, 96, true}})
    for (const auto& contexts : batches) expect_single_rows(of, contexts, 0);
}

// Rows of one sequence read what the rows before them write in the same step, also where a split of a row's
// tokens ends between two drafts.
TEST_F(FusedLayers, DraftsOfASequenceReadEachOther) {
  const std::vector<std::vector<int32_t>> batches = {
      {1}, {61}, {63}, {64}, {510}, {2046}, {2100}, {1, 64, 700, 129}, std::vector<int32_t>(20, 62)};
  for (const Heads& of : {Heads{8, 2, 128, 128, true}, Heads{32, 2, 64, 64, true}, Heads{2, 2, 96, 96, true}})
    for (const auto& contexts : batches)
      for (const int32_t drafts : {1, 3}) expect_single_rows(of, contexts, drafts);
}

TEST_F(FusedLayers, RouterAndItsRouting) {
  for (const auto scoring : {Scoring::kSoftmax, Scoring::kSigmoid})
    for (const auto& [experts, depth, top_k] :
         {std::tuple{128, 2048, 8}, {7, 40, 3}, {512, 3000, 10}, {128, 4096, 1}})
      for (const int64_t rows : {1, 2, 8, 9}) {
        SCOPED_TRACE(fmt::format("{} experts, depth {}, {} rows", experts, depth, rows));
        Matrix x = Matrix::drawn(1, rows, depth), logits(rows, experts), expected_logits(rows, experts);
        Weight w(Matrix::drawn(2, experts, depth), DType::kBF16, 8),
            of_logits(Matrix::drawn(3, 1, experts), DType::kBF16);
        Matrix for_choice = Matrix::drawn(4, 1, experts);
        std::vector<uint8_t> valid(static_cast<size_t>(rows), 1);
        if (rows > 1) valid[1] = 0;
        std::vector<int32_t> idx(static_cast<size_t>(rows * top_k), -7), expected_idx = idx;
        Matrix weight(rows, top_k), expected_weight(rows, top_k);
        LinearRouteArgs args{.product = {.x = x.view(),
                                         .w = w.view(),
                                         .out = expected_logits.view(),
                                         .bias = view_of(of_logits.view().data, DType::kBF16, {experts}),
                                         .inputs = LinearArgs::Inputs::kWhole},
                             .route = {.logits = expected_logits.view(),
                                       .valid = valid,
                                       .top_k = top_k,
                                       .scoring = scoring,
                                       .scale = 1.5f,
                                       .expert_idx = view_of(expected_idx.data(), {rows, top_k}),
                                       .weight = expected_weight.view()}};
        if (scoring == Scoring::kSigmoid)
          args.route.bias = view_of(for_choice.view().data, DType::kF32, {experts});
        reference().linear_route(args);
        args.product.out = args.route.logits = logits.view();
        args.route.expert_idx = view_of(idx.data(), {rows, top_k});
        args.route.weight = weight.view();
        HostViews(gpu()).run(
            {&args.product.x, &args.product.w.plain, &args.product.out, &args.product.bias,
             &args.route.logits, &args.route.bias, &args.route.expert_idx, &args.route.weight},
            [&](Kernels& kernels) { kernels.linear_route(args); });
        expect_close(logits, expected_logits, kWhole);
        EXPECT_EQ(idx, expected_idx);
        expect_close(weight, expected_weight, 1e-3);
      }
}

struct Experts {
  int64_t rows, top_k, experts, hidden, inter;
  bool has_biases;
};

// Rows of one expert and of others, a row that goes nowhere, and more rows than the kernel for few takes.
TEST_F(FusedLayers, FewRowsThroughTheirExperts) {
  for (const Experts& of :
       {Experts{1, 8, 16, 2048, 768, false}, Experts{1, 1, 3, 64, 32, true}, Experts{3, 8, 9, 256, 96, true},
        Experts{4, 8, 12, 1024, 160, false}, Experts{32, 1, 2, 64, 40, true},
        Experts{9, 4, 6, 128, 64, false}, Experts{2, 4, 4, 72, 1000, true}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}, {} experts of {}", of.rows, of.hidden, of.experts, of.inter));
    std::vector<Weight> weights, biases;
    for (int64_t e = 0; e < of.experts; ++e) {
      const auto seed = static_cast<uint64_t>(100 + 10 * e);
      weights.emplace_back(Matrix::drawn(seed, of.inter, of.hidden), DType::kBF16);
      weights.emplace_back(Matrix::drawn(seed + 1, of.inter, of.hidden), DType::kBF16);
      weights.emplace_back(Matrix::drawn(seed + 2, of.hidden, of.inter), DType::kBF16);
      for (const int64_t width : {of.inter, of.inter, of.hidden})
        biases.emplace_back(Matrix::drawn(seed + 3 + biases.size() % 3, 1, width), DType::kBF16);
    }
    std::vector<int32_t> idx;
    for (int64_t row = 0; row < of.rows; ++row)
      for (int64_t n = 0; n < of.top_k; ++n)
        idx.push_back(row == 2 ? -1 : static_cast<int32_t>((row * 3 + n * (row % 2 + 1)) % of.experts));
    const int64_t slots = of.rows * of.top_k;
    Matrix x = Matrix::drawn(1, of.rows, of.hidden), weight = Matrix::drawn(2, of.rows, of.top_k);
    Matrix plus = Matrix::drawn(3, of.rows, of.hidden), onto = Matrix::drawn(4, of.rows, of.hidden),
           expected_onto = onto;
    Matrix out(of.rows, of.hidden), expected(of.rows, of.hidden);
    Matrix room(slots, of.hidden), scratch(slots, 2 * of.inter), y(slots, of.hidden);
    std::vector<int32_t> slot_of(static_cast<size_t>(slots)), start(static_cast<size_t>(of.experts) + 1);
    std::vector<WeightView> gate, up, down;
    std::vector<TensorView> gate_bias, up_bias, down_bias;
    for (size_t at = 0; at < weights.size(); at += 3) {
      gate.push_back(weights[at].view());
      up.push_back(weights[at + 1].view());
      down.push_back(weights[at + 2].view());
      if (!of.has_biases) continue;
      gate_bias.push_back(view_of(biases[at].view().data, DType::kBF16, {of.inter}));
      up_bias.push_back(view_of(biases[at + 1].view().data, DType::kBF16, {of.inter}));
      down_bias.push_back(at == 3 ? TensorView{}
                                  : view_of(biases[at + 2].view().data, DType::kBF16, {of.hidden}));
    }
    std::vector<PlaceSlotsArgs::Source> placed = {{.x = x.view(),
                                                   .expert_idx = view_of(idx.data(), {of.rows, of.top_k}),
                                                   .slot_of = view_of(slot_of.data(), {of.rows, of.top_k})}};
    std::vector<PullWeightedArgs::Source> pulled = {{.y = y.view(), .slot_of = placed[0].slot_of}};
    RoutedFfnArgs args{.place = {.sources = placed,
                                 .expert_start = view_of(start.data(), {of.experts + 1}),
                                 .out = room.view()},
                       .ffn = {.gate = gate,
                               .up = up,
                               .down = down,
                               .gate_bias = gate_bias,
                               .up_bias = up_bias,
                               .down_bias = down_bias,
                               .scratch = scratch.view(),
                               .y = y.view()},
                       .pull = {.pull = {.sources = pulled, .weight = weight.view(), .out = expected.view()},
                                .plus = plus.view(),
                                .onto = expected_onto.view()}};
    args.ffn.x = args.place.out;
    args.ffn.expert_start = args.place.expert_start;
    reference().routed_ffn(args);
    args.pull.pull.out = out.view();
    args.pull.onto = onto.view();
    std::vector<TensorView*> all = {&placed[0].x,        &placed[0].expert_idx, &placed[0].slot_of,
                                    &pulled[0].y,        &pulled[0].slot_of,    &args.place.expert_start,
                                    &args.place.out,     &args.ffn.x,           &args.ffn.expert_start,
                                    &args.ffn.scratch,   &args.ffn.y,           &args.pull.pull.weight,
                                    &args.pull.pull.out, &args.pull.plus,       &args.pull.onto};
    for (auto* views : {&gate, &up, &down})
      for (WeightView& view : *views) all.push_back(&view.plain);
    for (auto* views : {&gate_bias, &up_bias, &down_bias})
      for (TensorView& view : *views) all.push_back(&view);
    HostViews(gpu()).run(all, [&](Kernels& kernels) { kernels.routed_ffn(args); });
    expect_close(out, expected, kRounded);
    expect_close(onto, expected_onto, kRounded);
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
