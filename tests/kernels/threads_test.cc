// No bit of an op depends on how many threads compute it, whichever they are and however they wait. What the
// bits should be is the other tests' business.
#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "lockstep/base/control_groups.h"
#include "lockstep/base/split.h"
#include "lockstep/kernels/cpu/compute_threads.h"
#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"

namespace lockstep::kernels {
namespace {

using cpu::ComputeThreads;

struct Sharing {
  int threads;
  ComputeThreads::Wait wait;
};
const std::vector<Sharing> kSharings = {{1, ComputeThreads::Wait::kSpin},
                                        {2, ComputeThreads::Wait::kSpin},
                                        {3, ComputeThreads::Wait::kSleep},
                                        {7, ComputeThreads::Wait::kSleep}};

TEST(ComputeThreads, EveryItemOnceOnAThreadThatIsThere) {
  for (const Sharing& sharing : kSharings) {
    ComputeThreads threads(sharing.threads, sharing.wait);
    ASSERT_EQ(threads.size(), sharing.threads);
    for (const int64_t items : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(items));
      threads.for_each(items, [&](int64_t item, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < sharing.threads) << thread;
        ++times[static_cast<size_t>(item)];
      });
      for (const auto& one : times) ASSERT_EQ(one.load(), 1);
    }
  }
}

TEST(ComputeThreads, ThousandsOfShortJobsOneAfterTheOther) {
  ComputeThreads threads(3, ComputeThreads::Wait::kSpin);
  std::vector<int64_t> sums(4);
  for (int64_t job = 1; job <= 3000; ++job) {
    threads.for_each(4, [&](int64_t item, int) { sums[static_cast<size_t>(item)] += job; });
    ASSERT_EQ(sums, std::vector<int64_t>(4, job * (job + 1) / 2));
  }
}

TEST(ComputeThreads, AFailureComesOutAndTheNextJobRuns) {
  ComputeThreads threads(3, ComputeThreads::Wait::kSleep);
  EXPECT_THROW(threads.for_each(100,
                                [&](int64_t item, int) {
                                  if (item == 37) throw std::runtime_error("item 37");
                                }),
               std::runtime_error);
  std::atomic<int> done = 0;
  threads.for_each(100, [&](int64_t, int) { ++done; });
  EXPECT_EQ(done.load(), 100);
}

TEST(ComputeThreads, ARankWithoutANumberTakesItsShareOfTheCores) {
  const int cores = usable_cores();
  EXPECT_EQ(cpu_threads_of_a_rank(std::nullopt, 1).count, cores);
  EXPECT_EQ(cpu_threads_of_a_rank(std::nullopt, 4 * cores).count, 1);
  EXPECT_EQ(cpu_threads_of_a_rank(std::nullopt, 4 * cores).wait, CpuThreads::Wait::kSleep);
  EXPECT_EQ(cpu_threads_of_a_rank(3, 1).count, 3);
  EXPECT_EQ(cpu_threads_of_a_rank(cores, 1).wait, CpuThreads::Wait::kSpin);
  EXPECT_EQ(cpu_threads_of_a_rank(cores + 1, 1).wait, CpuThreads::Wait::kSleep);
}

// Runs `op` on one thread and on several, which must leave the same numbers in the matrix that it returns.
class ThreadsTest : public KernelsTest {
 protected:
  template <class Op>
  void expect_same_bits(const std::string& what, Op&& op) {
    if (is_reference()) return;  // has one thread
    SCOPED_TRACE(what);
    const Matrix alone = run(1, op);
    for (const int count : {2, 3, 7}) {
      SCOPED_TRACE(count);
      const Matrix shared = run(count, op);
      for (int64_t row = 0; row < alone.rows(); ++row)
        ASSERT_TRUE(shared.row_equals(row, alone, row)) << "row " << row;
    }
  }

 private:
  template <class Op>
  static Matrix run(int count, Op&& op) {
    const auto kernels = make_cpu_kernels({.count = count, .wait = CpuThreads::Wait::kSleep});
    Matrix out = op(*kernels);
    out.expect_written_exactly();
    return out;
  }
};

TEST_P(ThreadsTest, Products) {
  for (const int64_t rows : {0, 1, 5, 97, 200})
    for (const int64_t outs : {1, 17, 300}) {
      Matrix x = Matrix::drawn(1, rows, 130), w = Matrix::drawn(2, outs, 130),
             bias = Matrix::drawn(3, 1, outs);
      const TensorView bias_vector = view_of(&bias.at(0, 0), {outs});
      expect_same_bits(fmt::format("linear {} x {}", rows, outs), [&](Kernels& kernels) {
        Matrix out(rows, outs);
        kernels.linear({.x = x.view(), .w = w.view(), .out = out.view(), .bias = bias_vector});
        return out;
      });
      Matrix y = Matrix::drawn(4, rows, outs);
      expect_same_bits(fmt::format("matmul {} x {}", rows, outs), [&](Kernels& kernels) {
        Matrix out(rows, 130);
        kernels.matmul({.x = y.view(), .w = w.view(), .out = out.view()});
        return out;
      });
    }
}

TEST_P(ThreadsTest, ProductsOfOneMatrix) {
  for (const int64_t rows : {0, 1, 16, 97}) {
    Matrix x = Matrix::drawn(1, rows, 1030), w = Matrix::drawn(2, 320, 1030), bias = Matrix::drawn(3, 1, 320);
    expect_same_bits(fmt::format("linears of {} rows", rows), [&](Kernels& kernels) {
      Matrix out(rows, 320);
      std::vector<LinearArgs> products;
      for (const Range outs : {Range{0, 240}, Range{240, 240}, Range{240, 241}, Range{241, 320}})
        products.push_back({.x = x.view(),
                            .w = w.view().row_range(outs.begin, outs.size()),
                            .out = out.view().col_range(outs.begin, outs.size()),
                            .bias = view_of(&bias.at(0, outs.begin), {outs.size()})});
      kernels.linears(products);
      return out;
    });
  }
}

TEST_P(ThreadsTest, Experts) {
  const std::vector<int32_t> starts = {0, 0, 3, 110, 111};
  Matrix x = Matrix::drawn(1, 111, 70), gate = Matrix::drawn(2, 4 * 50, 70),
         up = Matrix::drawn(3, 4 * 50, 70), down = Matrix::drawn(4, 4 * 70, 50);
  std::vector<WeightView> gates, ups, downs;
  for (int64_t expert = 0; expert < 4; ++expert) {
    gates.push_back(gate.view().row_range(50 * expert, 50));
    ups.push_back(up.view().row_range(50 * expert, 50));
    downs.push_back(down.view().row_range(70 * expert, 70));
  }
  expect_same_bits("experts", [&](Kernels& kernels) {
    std::vector<int32_t> start = starts;
    Matrix scratch(111, 100), y(111, 70);
    kernels.grouped_ffn({.x = x.view(),
                         .expert_start = view_of(start.data(), {5}),
                         .gate = gates,
                         .up = ups,
                         .down = downs,
                         .scratch = scratch.view(),
                         .y = y.view()});
    return y;
  });
}

TEST_P(ThreadsTest, RowsAndTheFirstThatIsNotFinite) {
  constexpr int64_t kRows = 90, kWidth = 700;
  Matrix x = Matrix::drawn(1, kRows, kWidth), y = Matrix::drawn(2, kRows, kWidth);
  Matrix weight = Matrix::drawn(3, 1, kWidth);
  x.at(61, 5) = x.at(88, 1) = std::numeric_limits<float>::infinity();
  const TensorView norm_weight = view_of(&weight.at(0, 0), {kWidth});
  expect_same_bits("rms_norm", [&](Kernels& kernels) {
    Matrix out(kRows, kWidth);
    RmsNormArgs args{.x = x.view(), .weight = norm_weight, .out = out.view()};
    kernels.rms_norm(args);
    EXPECT_EQ(args.first_non_finite_row, 61);
    return out;
  });
  expect_same_bits("sum_add_norm", [&](Kernels& kernels) {
    Matrix out(kRows, kWidth), residual = Matrix::drawn(4, kRows, kWidth);
    const std::vector<TensorView> addends = {x.view(), y.view()};
    SumAddNormArgs args{
        .addends = addends, .residual = residual.view(), .weight = norm_weight, .out = out.view()};
    kernels.sum_add_norm(args);
    EXPECT_EQ(args.first_non_finite_row, 61);
    return out;
  });
  expect_same_bits("silu_mul", [&](Kernels& kernels) {
    Matrix out(kRows, kWidth);
    kernels.silu_mul({.gate = x.view(), .up = y.view(), .out = out.view()});
    return out;
  });
  expect_same_bits("add and sigmoid_mul", [&](Kernels& kernels) {
    Matrix out = Matrix::drawn(5, kRows, kWidth);
    kernels.add({.x = out.view(), .y = y.view()});
    kernels.sigmoid_mul({.x = out.view(), .gate = y.view()});
    return out;
  });
}

TEST_P(ThreadsTest, WayToExpertsAndBack) {
  constexpr int64_t kRows = 61, kWidth = 520, kTopK = 3, kExperts = 6;
  Matrix x = Matrix::drawn(1, kRows, kWidth), logits = Matrix::drawn(2, kRows, kExperts);
  std::vector<uint8_t> valid(kRows, 1);
  valid[7] = 0;
  expect_same_bits("route, place_slots, pull_weighted", [&](Kernels& kernels) {
    std::vector<int32_t> expert(kRows * kTopK), slot(kRows * kTopK), start(kExperts + 1);
    Matrix weight(kRows, kTopK), slots(kRows * kTopK, kWidth), out(kRows, kWidth);
    const TensorView expert_idx = view_of(expert.data(), {kRows, kTopK});
    kernels.route({.logits = logits.view(),
                   .valid = valid,
                   .top_k = kTopK,
                   .expert_idx = expert_idx,
                   .weight = weight.view()});
    const TensorView slot_of = view_of(slot.data(), {kRows, kTopK});
    const std::vector<PlaceSlotsArgs::Source> from = {
        {.x = x.view(), .expert_idx = expert_idx, .slot_of = slot_of}};
    kernels.place_slots(
        {.sources = from, .expert_start = view_of(start.data(), {kExperts + 1}), .out = slots.view()});
    const std::vector<PullWeightedArgs::Source> back = {{.y = slots.view(), .slot_of = slot_of}};
    kernels.pull_weighted({.sources = back, .weight = weight.view(), .out = out.view()});
    return out;
  });
}

TEST_P(ThreadsTest, AttentionOverPages) {
  // Three sequences with a row of padding between: a prompt, a prompt's second piece, and a decode step.
  constexpr int64_t kHeads = 6, kHeadDim = 16, kPages = 40;
  constexpr int kPageSize = 4;
  std::vector<int32_t> pages(kPages);
  std::iota(pages.rbegin(), pages.rend(), 0);
  const std::span<const int32_t> all = pages;
  const std::vector<PagedSequence> sequences = {
      {.page_table = all.subspan(0, 15), .first_row = 0, .num_rows = 60, .context = 60},
      {.page_table = all.subspan(15, 12), .first_row = 61, .num_rows = 20, .context = 45},
      {.page_table = all.subspan(27, 13), .first_row = 81, .num_rows = 1, .context = 50}};
  Matrix q = Matrix::drawn(1, 82, kHeads * kHeadDim), k = Matrix::drawn(2, 82, 2 * kHeadDim);
  expect_same_bits("gqa", [&](Kernels& kernels) {
    Matrix keys = Matrix::drawn(3, kPages * kPageSize, 2 * kHeadDim), out(82, kHeads * kHeadDim);
    kernels.cache_write(
        {.x = k.view(), .sequences = sequences, .page_size = kPageSize, .cache = keys.view()});
    kernels.gqa({.q = q.cube(kHeads),
                 .sequences = sequences,
                 .page_size = kPageSize,
                 .k = keys.view(),
                 .v = keys.view(),
                 .group = 3,
                 .scale = 0.25f,
                 .out = out.cube(kHeads)});
    return out;
  });
  constexpr int64_t kLatent = 24;
  Matrix latents = Matrix::drawn(4, kPages * kPageSize, kLatent + 8), absorbed = Matrix::drawn(5, 82, 6 * 32);
  expect_same_bits("mla_absorbed", [&](Kernels& kernels) {
    Matrix out(82, kHeads * kLatent);
    kernels.mla_absorbed({.q = absorbed.cube(kHeads),
                          .sequences = sequences,
                          .page_size = kPageSize,
                          .cache = latents.view(),
                          .latent = kLatent,
                          .scale = 0.2f,
                          .out = out.cube(kHeads)});
    return out;
  });
  Matrix kv = Matrix::drawn(6, 82, kHeads * 20), k_rope = Matrix::drawn(7, 82, 8);
  Matrix expanded = Matrix::drawn(8, 70, kHeads * 20);
  expect_same_bits("mla_expanded", [&](Kernels& kernels) {
    Matrix out(70, kHeads * 8);
    kernels.mla_expanded({.q = expanded.cube(kHeads),
                          .kv = kv.cube(kHeads),
                          .k_rope = k_rope.view(),
                          .nope = 12,
                          .scale = 0.2f,
                          .out = out.cube(kHeads)});
    return out;
  });
}

TEST_P(ThreadsTest, GatedDelta) {
  constexpr int64_t kHeads = 4, kKeyDim = 8, kValueDim = 24;
  const std::vector<PagedSequence> sequences = {{.first_row = 0, .num_rows = 9, .context = 9, .slot = 1},
                                                {.first_row = 10, .num_rows = 1, .context = 5, .slot = 0}};
  Matrix q = Matrix::drawn(1, 11, 2 * kKeyDim), k = Matrix::drawn(2, 11, 2 * kKeyDim);
  Matrix v = Matrix::drawn(3, 11, kHeads * kValueDim), gates(11, kHeads);
  for (int64_t row = 0; row < 11; ++row)
    for (int64_t head = 0; head < kHeads; ++head)
      gates.at(row, head) = 0.5f + 0.03f * static_cast<float>(row);
  expect_same_bits("gated_delta", [&](Kernels& kernels) {
    Matrix states = Matrix::drawn(4, 2, kHeads * kKeyDim * kValueDim), out(11, kHeads * kValueDim);
    TensorView state = states.view();
    state.num_dims = 4;
    state.shape = {2, kHeads, kKeyDim, kValueDim};
    state.stride = {kHeads * kKeyDim * kValueDim, kKeyDim * kValueDim, kValueDim, 1};
    kernels.gated_delta({.q = q.cube(2),
                         .k = k.cube(2),
                         .v = v.cube(kHeads),
                         .decay = gates.view(),
                         .beta = gates.view(),
                         .sequences = sequences,
                         .group = 2,
                         .state = state,
                         .out = out.cube(kHeads)});
    return out;
  });
}

TEST_P(ThreadsTest, RowsInAndTheirPositions) {
  constexpr int64_t kRows = 150, kHeads = 5, kHeadDim = 36;
  Matrix table = Matrix::drawn(1, 40, kHeads * kHeadDim), cos = Matrix::drawn(2, 50, 8),
         sin = Matrix::drawn(3, 50, 8);
  std::vector<int32_t> ids(kRows), positions(kRows);
  for (size_t row = 0; row < kRows; ++row) {
    ids[row] = static_cast<int32_t>(row * 7 % 41);  // 40 is outside
    positions[row] = static_cast<int32_t>(row * 11 % 50);
  }
  expect_same_bits("embed", [&](Kernels& kernels) {
    Matrix out(kRows, kHeads * kHeadDim);
    kernels.embed({.token_ids = ids, .table = table.view(), .out = out.view()});
    return out;
  });
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalf})
    expect_same_bits("rope", [&](Kernels& kernels) {
      Matrix x = Matrix::drawn(4, kRows, kHeads * kHeadDim);
      kernels.rope({.x = x.view(),
                    .num_heads = kHeads,
                    .head_stride = kHeadDim,
                    .offset = 20,
                    .dim = 16,
                    .positions = positions,
                    .cos = cos.view(),
                    .sin = sin.view(),
                    .pairing = pairing});
      return x;
    });
  expect_same_bits("l2_norm", [&](Kernels& kernels) {
    Matrix x = Matrix::drawn(5, kRows, kHeads * kHeadDim);
    kernels.l2_norm({.x = x.cube(kHeads), .scale = 0.3f});
    return x;
  });
}

TEST_P(ThreadsTest, Convolution) {
  constexpr int64_t kChannels = 300, kTaps = 4;
  const std::vector<PagedSequence> sequences = {{.first_row = 0, .num_rows = 40, .context = 40, .slot = 1},
                                                {.first_row = 41, .num_rows = 1, .context = 5, .slot = 0}};
  Matrix x = Matrix::drawn(1, 42, kChannels), weight = Matrix::drawn(2, kTaps, kChannels);
  expect_same_bits("causal_conv", [&](Kernels& kernels) {
    Matrix states = Matrix::drawn(3, 2 * (kTaps - 1), kChannels), out(42, kChannels);
    TensorView state = states.view();
    state.num_dims = 3;
    state.shape = {2, kTaps - 1, kChannels};
    state.stride = {(kTaps - 1) * kChannels, kChannels, 1};
    kernels.causal_conv(
        {.x = x.view(), .weight = weight.view(), .sequences = sequences, .state = state, .out = out.view()});
    return out;
  });
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(ThreadsTest);

}  // namespace
}  // namespace lockstep::kernels
