// What long prompts take on a GPU and short ones do not, against the reference: attention by turns over
// several pieces of work, queries that one op leaves rounded for the next, and rows to many-rowed experts and
// back.
#include "tests/gpu/gpu_test.h"

namespace lockstep::kernels::test {
namespace {

constexpr double kFloat = 5e-6, kRounded = 4e-3;

class PromptOps : public OnGpu {};

// Chunks of two sequences, rows of decoding between them, in a cache whose pages lie in no order.
struct Prompts {
  static constexpr int kTokens = 900;
  int heads, group, page_size;
  int64_t kv = int64_t{heads} / group * 128, width = int64_t{heads} * 128;
  PagedCache k{4, kTokens, page_size, kv, DType::kBF16}, v{4, kTokens, page_size, kv, DType::kBF16};

  Prompts(int of_heads, int of_group, int of_page_size)
      : heads(of_heads), group(of_group), page_size(of_page_size) {
    const auto reference = make_reference_kernels();
    Matrix keys = Matrix::drawn(61, kTokens, kv), values = Matrix::drawn(62, kTokens, kv);
    for (size_t s = 0; s < 4; ++s) {
      // What lies behind a sequence's tokens may be anything.
      const std::vector<PagedSequence> whole = {k.sequence(s, 0, kTokens, kTokens)};
      reference->cache_write(
          {.x = keys.view(), .sequences = whole, .page_size = page_size, .cache = k.view()});
      reference->cache_write(
          {.x = values.view(), .sequences = whole, .page_size = page_size, .cache = v.view()});
    }
  }
  GqaArgs args(Matrix& q, const std::vector<PagedSequence>& sequences, Matrix& out) {
    return {.q = q.cube(heads),
            .sequences = sequences,
            .page_size = page_size,
            .k = k.view(),
            .v = v.view(),
            .group = group,
            .scale = 0.3f,
            .out = out.cube(heads)};
  }
};

TEST_F(PromptOps, AttentionOfLongChunks) {
  for (const auto& [heads, group, page_size] :
       {std::tuple{16, 8, 16}, {8, 2, 64}, {3, 1, 8}, {9, 3, 128}, {10, 5, 16}, {16, 16, 32}, {32, 4, 16}}) {
    SCOPED_TRACE(fmt::format("{} heads by {}, pages of {}", heads, group, page_size));
    Prompts prompts(heads, group, page_size);
    const std::vector<PagedSequence> sequences = {
        prompts.k.sequence(0, 0, 130, 130), prompts.k.sequence(1, 130, 2, 257),
        prompts.k.sequence(2, 132, 1, 700), prompts.k.sequence(3, 133, 200, 840)};
    Matrix q = Matrix::drawn(63, 334, prompts.width, 4), out(334, prompts.width),
           expected(334, prompts.width);
    GqaArgs args = prompts.args(q, sequences, expected);
    reference().gqa(args);
    args.out = out.cube(heads);
    HostViews(gpu()).run({&args.q, &args.k, &args.v, &args.out},
                         [&](Kernels& kernels) { kernels.gqa(args); });
    expect_close(out, expected, kRounded);
  }
}

// How a prompt is cut into chunks, and what else is computed, changes no bit of a row.
TEST_F(PromptOps, AttentionOfARowDoesNotDependOnItsChunk) {
  constexpr int kHeads = 16, kRows = 300, kCut = 110;
  Prompts prompts(kHeads, 8, 16);
  Matrix q = Matrix::drawn(64, kRows, prompts.width), whole(kRows, prompts.width), cut(kRows, prompts.width);
  const std::vector<PagedSequence> one = {prompts.k.sequence(1, 0, kRows, 800)};
  const std::vector<PagedSequence> two = {prompts.k.sequence(1, kCut, kRows - kCut, 800),
                                          prompts.k.sequence(1, 0, kCut, 800 - (kRows - kCut))};
  for (const auto& [sequences, out] : {std::pair{&one, &whole}, {&two, &cut}}) {
    GqaArgs args = prompts.args(q, *sequences, *out);
    HostViews(gpu()).run({&args.q, &args.k, &args.v, &args.out},
                         [&](Kernels& kernels) { kernels.gqa(args); });
  }
  for (int64_t row = 0; row < kRows; ++row) EXPECT_TRUE(cut.row_equals(row, whole, row)) << row;
}

// Scores that grow all along, and such as are far from each other.
TEST_F(PromptOps, AttentionOfLargeScores) {
  constexpr int kHeads = 8, kRows = 260;
  Prompts prompts(kHeads, 8, 16);
  Matrix q = Matrix::drawn(65, kRows, prompts.width), out(kRows, prompts.width),
         expected(kRows, prompts.width);
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t c = 0; c < prompts.width; ++c) q.at(row, c) = to_float(to_bf16(q.at(row, c) * 40.0f));
  const std::vector<PagedSequence> sequences = {prompts.k.sequence(0, 0, kRows, 700)};
  GqaArgs args = prompts.args(q, sequences, expected);
  reference().gqa(args);
  args.out = out.cube(kHeads);
  HostViews(gpu()).run({&args.q, &args.k, &args.v, &args.out}, [&](Kernels& kernels) { kernels.gqa(args); });
  expect_close(out, expected, kRounded);
}

// As a layer runs them: queries are normed, turned, and read by attention.
TEST_F(PromptOps, RowsOfQueriesKeysAndValuesThenAttention) {
  constexpr int64_t kRows = 530, kQueries = 530, kOuts = 40;
  // Readers: what the ops leave in scratch alone, as a layer allows.
  for (const auto& [heads, kv_heads, query_stride, norms, readers] :
       {std::tuple{8, 2, 128, true, Readers::kAny},
        {3, 3, 128, false, Readers::kAny},
        {16, 1, 256, true, Readers::kAny},
        {8, 2, 128, true, Readers::kNextRounds},
        {16, 1, 256, true, Readers::kNextRounds},
        {34, 2, 128, false, Readers::kNextRounds}}) {
    SCOPED_TRACE(
        fmt::format("{} heads, {} apart, readers {}", heads, query_stride, static_cast<int>(readers)));
    const int64_t kv = int64_t{kv_heads} * 128;
    PagedCache keys(2, 600, 16, kv, DType::kBF16), expected_keys = keys, values = keys,
                                                   expected_values = keys;
    const std::vector<PagedSequence> sequences = {keys.sequence(1, 0, 9, 9), keys.sequence(0, 9, 520, 600),
                                                  keys.sequence(1, 529, 1, 10)};
    Matrix past = Matrix::drawn(4, 600, kv);
    for (PagedCache* cache : {&keys, &expected_keys, &values, &expected_values}) {
      const std::vector<PagedSequence> whole = {keys.sequence(0, 0, 600, 600)};
      reference().cache_write(
          {.x = past.view(), .sequences = whole, .page_size = 16, .cache = cache->view()});
    }
    Matrix q = Matrix::drawn(1, kQueries, int64_t{heads} * query_stride), expected_q = q;
    Matrix k = Matrix::drawn(2, kRows, kv), expected_k = k, v = Matrix::drawn(3, kRows, kv);
    Matrix cos = Matrix::drawn(6, 100, 64), sin = Matrix::drawn(7, 100, 64);
    Weight q_norm(Matrix::drawn(8, 1, 128), DType::kBF16), k_norm(Matrix::drawn(9, 1, 128), DType::kF32);
    std::vector<int32_t> positions;
    for (int64_t row = 0; row < kRows; ++row) positions.push_back(static_cast<int32_t>(row * 7 % 100));
    AttentionRowsArgs rows{.q = expected_q.view(),
                           .k = expected_k.view(),
                           .v = v.view(),
                           .head_dim = 128,
                           .query_stride = query_stride,
                           .dim = 128,
                           .q_positions = positions,
                           .k_positions = positions,
                           .cos = cos.view(),
                           .sin = sin.view(),
                           .sequences = sequences,
                           .page_size = 16,
                           .keys = expected_keys.view(),
                           .values = expected_values.view(),
                           .q_readers = readers};
    if (norms) {
      rows.q_norm = view_of(q_norm.view().data, DType::kBF16, {128});
      rows.k_norm = rows.q_norm;
    }
    const auto heads_of_q = [&](const TensorView& of) {
      TensorView cube = view_of(of.data, DType::kF32, {kQueries, heads, 128});
      cube.stride = {of.stride[0], query_stride, 1};
      return cube;
    };
    Matrix out(kQueries, int64_t{heads} * 128), expected(kQueries, int64_t{heads} * 128);
    GqaArgs attention{.q = heads_of_q(rows.q),
                      .sequences = sequences,
                      .page_size = 16,
                      .k = rows.keys,
                      .v = rows.values,
                      .group = heads / kv_heads,
                      .scale = 0.1f,
                      .out = expected.cube(heads),
                      .out_readers = readers};
    Weight w(Matrix::drawn(10, kOuts, int64_t{heads} * 128), DType::kBF16);
    Matrix product(kQueries, kOuts), expected_product(kQueries, kOuts);
    LinearArgs linear{.x = expected.view(), .w = w.view(), .out = expected_product.view()};
    reference().attention_rows(rows);
    reference().gqa(attention);
    reference().linear(linear);
    rows.q = q.view();
    rows.k = k.view();
    rows.keys = keys.view();
    rows.values = values.view();
    attention.out = out.cube(heads);
    linear.x = out.view();
    linear.out = product.view();
    HostViews(gpu()).run({&rows.q, &rows.k, &rows.v, &rows.q_norm, &rows.k_norm, &rows.cos, &rows.sin,
                          &rows.keys, &rows.values, &attention.out, &linear.x, &linear.w.plain, &linear.out},
                         [&](Kernels& kernels) {
                           attention.q = heads_of_q(rows.q);
                           attention.k = rows.keys;
                           attention.v = rows.values;
                           kernels.attention_rows(rows);
                           kernels.gqa(attention);
                           kernels.linear(linear);
                         });
    if (readers == Readers::kAny) {
      expect_close(q, expected_q, kFloat);
      expect_close(out, expected, 1.5 * kRounded);
    }
    expect_close(product, expected_product, 2 * kRounded);
    for (const int64_t token : {89, 90, 333, 599})
      for (int64_t c = 0; c < kv; ++c) {
        ASSERT_NEAR(keys.at(0, token, c), expected_keys.at(0, token, c), 2e-2) << token;
        ASSERT_EQ(values.at(0, token, c), expected_values.at(0, token, c)) << token;
      }
  }
}

// A rank may have no rows of its own while others' are many.
TEST_F(PromptOps, NoRowsArePulledFromRoundedOutputs) {
  Matrix y = Matrix::drawn(1, 8, 32), out(0, 32), weight(0, 2);
  std::vector<int32_t> slots(16);
  Weight rounded(y, DType::kBF16);
  PullWeightedArgs::Source source{.y = rounded.view(), .slot_of = view_of(slots.data(), {0, 2})};
  PullWeightedArgs args{.sources = {&source, 1}, .weight = weight.view(), .out = out.view()};
  HostViews(gpu()).run({&source.y, &source.slot_of, &args.weight, &args.out},
                       [&](Kernels& kernels) { kernels.pull_weighted(args); });
}

// Rows to experts that alone read them, and back: placed, multiplied and added up in whatever form they take
// between.
TEST_F(PromptOps, RowsToExpertsAndBack) {
  struct Case {
    int64_t rows, hidden, inter;
    int experts, first, local, top_k;
    DType dtype = DType::kBF16;
  };
  for (const Case& one :
       {Case{600, 640, 32, 8, 0, 8, 4}, Case{620, 1032, 200, 6, 2, 3, 3}, Case{1500, 776, 96, 40, 0, 40, 1},
        Case{610, 64, 32, 8, 0, 8, 4}, Case{530, 192, 200, 6, 2, 3, 3}, Case{1100, 136, 96, 4, 0, 4, 2},
        Case{520, 200, 104, 16, 0, 16, 8}, Case{520, 20, 12, 4, 0, 4, 2},
        Case{520, 64, 32, 4, 0, 4, 2, DType::kF32}, Case{700, 256, 64, 64, 0, 64, 2}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}, {} of {} experts {} wide, {}", one.rows, one.hidden, one.local,
                             one.experts, one.inter, name_of(one.dtype)));
    std::vector<Weight> gate, up, down;
    for (uint64_t e = 0; e < static_cast<uint64_t>(one.local); ++e) {
      gate.emplace_back(Matrix::drawn(100 + e, one.inter, one.hidden), one.dtype);
      up.emplace_back(Matrix::drawn(200 + e, one.inter, one.hidden), one.dtype);
      down.emplace_back(Matrix::drawn(300 + e, one.hidden, one.inter), one.dtype);
    }
    std::vector<WeightView> gates, ups, downs;
    for (size_t e = 0; e < gate.size(); ++e) {
      gates.push_back(gate[e].view());
      ups.push_back(up[e].view());
      downs.push_back(down[e].view());
    }
    Matrix x = Matrix::drawn(1, one.rows, one.hidden), weight = Matrix::drawn(2, one.rows, one.top_k);
    Matrix plus = Matrix::drawn(3, one.rows, one.hidden), onto = Matrix::drawn(4, one.rows, one.hidden);
    Matrix expected_onto = onto;
    const int64_t slots = one.rows * one.top_k;
    std::vector<int32_t> idx(static_cast<size_t>(slots)), slot_of(idx.size(), -9), start(gate.size() + 1, -5);
    for (size_t at = 0; at < idx.size(); ++at)  // experts of a row differ; the first of all has most
      idx[at] = static_cast<int32_t>((draw(9, at / static_cast<size_t>(one.top_k)) < 0 ? 0 : at * at) + at) %
                one.experts;
    idx[3] = -1;
    TensorView x_view = x.view(), idx_view = view_of(idx.data(), {one.rows, one.top_k});
    TensorView slot_view = view_of(slot_of.data(), {one.rows, one.top_k});
    TensorView start_view = view_of(start.data(), {static_cast<int64_t>(start.size())});
    TensorView weight_view = weight.view(), plus_view = plus.view(), onto_view = expected_onto.view();
    const bool norms_first = one.rows % 20 == 0;  // then rows may be read where the norm left them
    Weight norm(Matrix::drawn(5, 1, one.hidden), DType::kBF16);
    TensorView norm_view = view_of(norm.view().data, DType::kBF16, {one.hidden});
    Matrix last(one.rows, one.hidden), expected_last = last;
    Matrix product(one.rows, one.inter), expected_product = product;
    TensorView last_view = expected_last.view(), product_view = expected_product.view();
    const auto layer = [&](Kernels& kernels) {
      Buffer normed(kernels.memory());
      const TensorView from = norms_first ? normed.view({one.rows, one.hidden}) : x_view;
      RmsNormArgs norm_args{.x = x_view, .weight = norm_view, .out = from};
      if (norms_first) kernels.rms_norm(norm_args);
      Buffer rows(kernels.memory()), scratch(kernels.memory()), y(kernels.memory()), sum(kernels.memory());
      const PlaceSlotsArgs::Source source{.x = from, .expert_idx = idx_view, .slot_of = slot_view};
      const TensorView placed = rows.view({slots, one.hidden});
      kernels.place_slots({.sources = {&source, 1},
                           .first_expert = one.first,
                           .expert_start = start_view,
                           .out = placed,
                           .readers = one.dtype == DType::kBF16 ? Readers::kNextRounds : Readers::kAny});
      const bool on_host = kernels.memory().access() == Memory::Access::kByHost;
      const TensorView used = on_host ? placed.row_range(0, start_view.as<int32_t>()[one.local]) : placed;
      GroupedFfnArgs ffn{.x = used,
                         .expert_start = start_view,
                         .gate = gates,
                         .up = ups,
                         .down = downs,
                         .scratch = scratch.view({used.rows(), 2 * one.inter})};
      ffn.y = y.view(kernels.type_of_expert_outputs(ffn), {used.rows(), one.hidden});
      kernels.grouped_ffn(ffn);
      const PullWeightedArgs::Source pulled{.y = ffn.y, .slot_of = slot_view};
      const PullWeightedArgs pull{
          .sources = {&pulled, 1}, .weight = weight_view, .out = sum.view({one.rows, one.hidden})};
      if (!norms_first) return kernels.pull_add({.pull = pull, .plus = plus_view, .onto = onto_view});
      // With the norm that follows in a layer, and a product of that.
      PullAddNormArgs norm_of_sum{.pull = pull,
                                  .plus = plus_view,
                                  .residual = onto_view,
                                  .weight = norm_view,
                                  .out = last_view,
                                  .out_readers = one.top_k == 1 ? Readers::kNextRounds : Readers::kAny};
      kernels.pull_add_norm(norm_of_sum);
      kernels.linear({.x = last_view, .w = gates[0], .out = product_view});
    };
    layer(reference());
    const std::vector<int32_t> expected_slots = slot_of, expected_start = start;
    onto_view = onto.view();
    last_view = last.view();
    product_view = product.view();
    std::vector<TensorView*> all = {&last_view, &product_view, &norm_view,   &x_view,    &idx_view,
                                    &slot_view, &start_view,   &weight_view, &plus_view, &onto_view};
    for (auto* views : {&gates, &ups, &downs})
      for (WeightView& view : *views) all.push_back(&view.plain);
    HostViews(gpu()).run(all, layer);
    EXPECT_EQ(slot_of, expected_slots);
    EXPECT_EQ(start, expected_start);
    const double bound = one.dtype == DType::kF32 ? kFloat : 3 * kRounded;
    expect_close(onto, expected_onto, bound);
    if (!norms_first) continue;
    if (one.top_k > 1) expect_close(last, expected_last, bound);
    expect_close(product, expected_product, bound);
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
