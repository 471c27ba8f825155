#include "lockstep/collectives/in_process/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/collectives/on_ranks.h"

namespace lockstep::collectives::test {
namespace {

using ::testing::HasSubstr;

// Values that no order of summation can hide: eighths, exact in float32.
float value_of(int rank, int64_t row, int64_t column) {
  return static_cast<float>(rank * 1000 + row * 10 + column) / 8.0f;
}

std::vector<float> matrix_of(int rank, int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) values.push_back(value_of(rank, row, column));
  return values;
}

struct World {
  int ranks, attention_tp, processes = 1;
};
class Verbs : public ::testing::TestWithParam<World> {
 protected:
  planning::RankGrid grid_ = grid_of(GetParam().ranks, GetParam().attention_tp);
  static void on_all_ranks(const planning::RankGrid& grid, const Body& body) {
    test::on_all_ranks(grid, body, GetParam().processes);
  }
  // Every non-empty set of axes.
  std::vector<AxisSet> groups() const {
    std::vector<AxisSet> sets;
    for (uint32_t bits = 1; bits <= grid_.all().bits(); ++bits) sets.emplace_back(bits);
    return sets;
  }
};

TEST_P(Verbs, AllReduceSumsOverTheGroup) {
  for (const AxisSet over : groups())
    for (const int64_t rows : {0, 1, 5})
      on_all_ranks(grid_, [&](int rank, Communicator& communicator) {
        auto in = matrix_of(rank, rows, 3);
        std::vector<float> out(in.size(), -1);
        communicator.all_reduce({.in = view_of(in.data(), {rows, 3}), .out = view_of(out.data(), {rows, 3})},
                                over, {1, 2, "test"});
        std::vector<float> expected(in.size(), 0);
        for (const int member : grid_.group(rank, over)) {
          const auto theirs = matrix_of(member, rows, 3);
          for (size_t i = 0; i < theirs.size(); ++i) expected[i] += theirs[i];
        }
        EXPECT_EQ(out, expected);
      });
}

TEST_P(Verbs, ReduceScatterKeepsTheNamedRows) {
  for (const AxisSet over : groups())
    on_all_ranks(grid_, [&](int rank, Communicator& communicator) {
      const auto members = grid_.group(rank, over);
      const int64_t rows = static_cast<int64_t>(members.size()) * 2;
      const int index = grid_.index_in_group(rank, over);
      auto in = matrix_of(rank, rows, 4);
      std::vector<float> out(8, -1);
      const std::vector<RowPiece> keeps = {{.src_row = index * 2, .dst_row = 0, .num_rows = 2}};
      communicator.reduce_scatter(
          {.in = view_of(in.data(), {rows, 4}), .out = view_of(out.data(), {2, 4}), .keeps = keeps}, over,
          {1, 2, "test"});
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t column = 0; column < 4; ++column) {
          float sum = 0;
          for (const int member : members) sum += value_of(member, index * 2 + row, column);
          EXPECT_EQ(out[static_cast<size_t>(row * 4 + column)], sum);
        }
    });
}

// Uneven members: member m brings m rows, so the first brings none.
TEST_P(Verbs, AllGatherJoinsUnevenRows) {
  for (const AxisSet over : groups())
    on_all_ranks(grid_, [&](int rank, Communicator& communicator) {
      const auto members = grid_.group(rank, over);
      const int64_t own = grid_.index_in_group(rank, over);
      auto in = matrix_of(rank, own, 2);
      std::vector<RowPiece> pieces;
      int64_t rows = 0;
      for (int member = 0; member < static_cast<int>(members.size()); ++member) {
        pieces.push_back({.source = member, .src_row = 0, .dst_row = rows, .num_rows = member});
        rows += member;
      }
      std::vector<float> out(static_cast<size_t>(rows * 2), -1);
      communicator.all_gather(
          {.in = view_of(in.data(), {own, 2}), .out = view_of(out.data(), {rows, 2}), .pieces = pieces}, over,
          {1, 2, "test"});
      std::vector<float> expected;
      for (size_t member = 0; member < members.size(); ++member) {
        const auto theirs = matrix_of(members[member], static_cast<int64_t>(member), 2);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      EXPECT_EQ(out, expected);
    });
}

TEST_P(Verbs, ColumnsToRowsJoinsUnevenColumns) {
  for (const AxisSet over : groups())
    on_all_ranks(grid_, [&](int rank, Communicator& communicator) {
      const auto members = grid_.group(rank, over);
      const auto n = static_cast<int64_t>(members.size());
      const int64_t own = grid_.index_in_group(rank, over) + 1, all = n * (n + 1) / 2;
      auto in = matrix_of(rank, n, own);  // one row a member, kept by that member
      std::vector<float> out(static_cast<size_t>(all), -1);
      const std::vector<RowPiece> keeps = {{.src_row = own - 1, .dst_row = 0, .num_rows = 1}};
      communicator.columns_to_rows(
          {.in = view_of(in.data(), {n, own}), .out = view_of(out.data(), {1, all}), .keeps = keeps}, over,
          {1, 2, "test"});
      std::vector<float> expected;
      for (int64_t member = 0; member < n; ++member)
        for (int64_t column = 0; column <= member; ++column)
          expected.push_back(value_of(members[static_cast<size_t>(member)], own - 1, column));
      EXPECT_EQ(out, expected);
    });
}

TEST_P(Verbs, FusedStepEqualsItsUnfusedTwinBitForBit) {
  constexpr int64_t kHidden = 33;
  for (const AxisSet over : groups())
    for (const int64_t rows : {0, 1, 19})
      on_all_ranks(grid_, [&](int rank, Communicator& communicator) {
        const auto kernels = kernels::make_cpu_kernels();
        std::vector<float> in = matrix_of(rank, rows, kHidden), weight(kHidden, 0.75f);
        std::vector<float> residual = matrix_of(7, rows, kHidden), twin_residual = residual;
        std::vector<float> out(in.size()), sum(in.size()), twin_out(in.size());
        const auto view = [&](std::vector<float>& values) { return view_of(values.data(), {rows, kHidden}); };
        const TensorView w = view_of(weight.data(), {kHidden});
        FusedAllReduceAddNormArgs fused{
            .in = view(in), .residual = view(residual), .weight = w, .eps = 1e-6f, .out = view(out)};
        communicator.fused_all_reduce_add_norm(fused, *kernels, over, {1, 2, "fused"});
        communicator.all_reduce({.in = view(in), .out = view(sum)}, over, {1, 3, "twin"});
        kernels->add({.x = view(twin_residual), .y = view(sum)});
        kernels::RmsNormArgs norm{.x = view(twin_residual), .weight = w, .eps = 1e-6f, .out = view(twin_out)};
        kernels->rms_norm(norm);
        EXPECT_EQ(residual, twin_residual);
        EXPECT_EQ(out, twin_out);
        EXPECT_EQ(fused.first_non_finite_row, norm.first_non_finite_row);
      });
}

// The backend's own fused verbs beside those that any backend has: the separate verbs one after the other.
TEST_P(Verbs, FusedScatterNormGatherEqualsTheSeparateVerbsBitForBit) {
  constexpr int64_t kHidden = 6;
  on_all_ranks(grid_, [&](int rank, Communicator& communicator) {
    const auto kernels = kernels::make_cpu_kernels();
    const AxisSet over = grid_.all();
    const int n = grid_.num_ranks();
    // Member m keeps m % 3 * 6 rows: none, some, and more than are worked on at once.
    std::vector<RowPiece> pieces;
    int64_t rows = 0;
    for (int member = 0; member < n; ++member) {
      const int64_t count = member % 3 * 6;
      pieces.push_back({.source = member, .src_row = 0, .dst_row = rows, .num_rows = count});
      rows += count;
    }
    const RowPiece mine = pieces[static_cast<size_t>(rank)];
    const std::vector<RowPiece> keeps = {{.src_row = mine.dst_row, .dst_row = 0, .num_rows = mine.num_rows}};
    auto in = matrix_of(rank, rows, kHidden);
    auto residual = matrix_of(rank + 50, mine.num_rows, kHidden), weight = matrix_of(3, 1, kHidden);
    auto twin_residual = residual;
    const auto run = [&](std::vector<float>& added_to, std::vector<float>& out, uint32_t step, auto verb) {
      std::vector<float> normed(added_to.size());
      out.assign(in.size(), -1);
      FusedScatterAddNormGatherArgs args{.in = view_of(in.data(), {rows, kHidden}),
                                         .keeps = keeps,
                                         .residual = view_of(added_to.data(), {mine.num_rows, kHidden}),
                                         .weight = view_of(weight.data(), {kHidden}),
                                         .normed = view_of(normed.data(), {mine.num_rows, kHidden}),
                                         .pieces = pieces,
                                         .out = view_of(out.data(), {rows, kHidden})};
      verb(args, Tag{1, step, "fused"});
      return args.first_non_finite_row;
    };
    std::vector<float> out, twin_out;
    const auto fused = run(residual, out, 2, [&](auto& args, const Tag& tag) {
      communicator.fused_scatter_add_norm_gather(args, *kernels, over, tag);
    });
    const auto twin = run(twin_residual, twin_out, 3, [&](auto& args, const Tag& tag) {
      communicator.Communicator::fused_scatter_add_norm_gather(args, *kernels, over, tag);
    });
    EXPECT_EQ(residual, twin_residual);
    EXPECT_EQ(out, twin_out);
    EXPECT_EQ(fused, twin);
  });
}

TEST_P(Verbs, FusedCombineAddEqualsTheSeparateVerbsBitForBit) {
  constexpr int64_t kHidden = 5, kTopK = 2;
  const int n = grid_.num_ranks();
  on_all_ranks(grid_, [&](int rank, Communicator& communicator) {
    const auto kernels = kernels::make_cpu_kernels();
    const int64_t rows = rank % 3 * 7;
    auto x = matrix_of(rank, rows, kHidden), shared = matrix_of(rank + 9, rows, kHidden);
    std::vector<int32_t> experts;
    std::vector<float> weights;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = 0; k < kTopK; ++k) {
        experts.push_back(static_cast<int32_t>((rank + row + k) % n));
        weights.push_back(0.25f * static_cast<float>(row + k + 1));
      }
    Dispatched dispatched(host_memory());
    const TensorView idx = view_of(experts.data(), {rows, kTopK});
    communicator.dispatch({.x = view_of(x.data(), {rows, kHidden}),
                           .expert_idx = idx,
                           .first_expert = rank,
                           .num_local_experts = 1,
                           .out = &dispatched},
                          grid_.all(), {1, 2, "dispatch"});
    const int64_t slots = dispatched.rows.rows();
    std::vector<float> y(dispatched.rows.as<float>(), dispatched.rows.as<float>() + slots * kHidden);
    std::vector<float> room(x.size()), residual = matrix_of(rank + 70, rows, kHidden), twin = residual;
    const auto args_for = [&](std::vector<float>& added_to, const TensorView& adds) {
      return FusedCombineAddArgs{.combine = {.dispatched = &dispatched,
                                             .y = view_of(y.data(), {slots, kHidden}),
                                             .expert_idx = idx,
                                             .weight = view_of(weights.data(), {rows, kTopK}),
                                             .out = view_of(room.data(), {rows, kHidden})},
                                 .shared = adds,
                                 .residual = view_of(added_to.data(), {rows, kHidden})};
    };
    uint32_t step = 3;
    for (const TensorView& adds : {view_of(shared.data(), {rows, kHidden}), TensorView()}) {
      communicator.fused_combine_add(args_for(residual, adds), *kernels, grid_.all(), {1, step++, "fused"});
      communicator.Communicator::fused_combine_add(args_for(twin, adds), *kernels, grid_.all(),
                                                   {1, step++, "twin"});
      EXPECT_EQ(residual, twin);
    }
  });
}

// Each rank owns one expert; a row goes to three of them. The experts multiply by their number.
// However the slots lie, each row visits its experts once.
TEST_P(Verbs, DispatchAndCombineVisitEveryExpertOnce) {
  constexpr int64_t kHidden = 5, kTopK = 3;
  const int n = grid_.num_ranks();
  for (const auto layout : {planning::ExchangeSlots::kExactCount, planning::ExchangeSlots::kExpertMajor,
                            planning::ExchangeSlots::kTokenMajor})
    on_all_ranks(grid_, [&](int rank, Communicator& communicator) {
      const int64_t rows = rank % 3;  // uneven, some without rows
      auto x = matrix_of(rank, rows, kHidden);
      std::vector<int32_t> experts;
      std::vector<float> weights;
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t k = 0; k < kTopK; ++k) {
          // The second row's last choice is no expert, as padding and dropped rows have it.
          experts.push_back(row == 1 && k == 2 ? -1 : static_cast<int32_t>((rank + row + k) % n));
          weights.push_back(static_cast<float>(k + 1));
        }
      Dispatched dispatched(host_memory());
      const TensorView idx = view_of(experts.data(), {rows, kTopK});
      communicator.dispatch({.x = view_of(x.data(), {rows, kHidden}),
                             .expert_idx = idx,
                             .first_expert = rank,
                             .num_local_experts = 1,
                             .slots = layout,
                             .max_rows = 2,
                             .out = &dispatched},
                            grid_.all(), {1, 2, "dispatch"});
      const int64_t slots = dispatched.rows.rows();
      if (layout == planning::ExchangeSlots::kExpertMajor) {
        EXPECT_EQ(slots, 2 * n);
      }
      std::vector<float> y(dispatched.rows.as<float>(), dispatched.rows.as<float>() + slots * kHidden);
      for (float& value : y) value *= static_cast<float>(rank + 1);
      std::vector<float> out(x.size(), -1);
      communicator.combine({.dispatched = &dispatched,
                            .y = view_of(y.data(), {slots, kHidden}),
                            .expert_idx = idx,
                            .weight = view_of(weights.data(), {rows, kTopK}),
                            .out = view_of(out.data(), {rows, kHidden})},
                           grid_.all(), {1, 3, "combine"});
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < kHidden; ++column) {
          float expected = 0;
          for (int64_t k = 0; k < kTopK; ++k)
            if (const int32_t expert = experts[static_cast<size_t>(row * kTopK + k)]; expert >= 0)
              expected +=
                  static_cast<float>(k + 1) * (value_of(rank, row, column) * static_cast<float>(expert + 1));
          EXPECT_EQ(out[static_cast<size_t>(row * kHidden + column)], expected);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, Verbs,
    ::testing::Values(World{2, 1}, World{2, 2}, World{3, 3}, World{4, 2}, World{6, 2}, World{8, 2},
                      World{2, 1, 2}, World{4, 2, 2}, World{4, 2, 4}, World{6, 2, 3}, World{3, 3, 2}),
    [](const auto& world) {
      return "w" + std::to_string(world.param.ranks) + "_tp" + std::to_string(world.param.attention_tp) +
             (world.param.processes == 1 ? "" : "_processes" + std::to_string(world.param.processes));
    });

std::vector<float> some_row() { return {1, 2}; }

void reduce(Communicator& communicator, AxisSet over, const Tag& tag) {
  auto in = some_row(), out = some_row();
  communicator.all_reduce({.in = view_of(in.data(), {1, 2}), .out = view_of(out.data(), {1, 2})}, over, tag);
}

TEST(Waiting, NamesTheStepTheGroupAndTheMissingRank) {
  const auto grid = grid_of(4, 4);
  const auto errors =
      on_ranks(grid, {.deadline = std::chrono::milliseconds(150)}, [&](int rank, Communicator& communicator) {
        if (rank != 2)
          reduce(communicator, grid.all(), {77, 5, "all_reduce on the edge attention.3 -> dense.3"});
      });
  const std::string& error = errors[0];
  EXPECT_THAT(error, HasSubstr("step 5 of engine step 77"));
  EXPECT_THAT(error, HasSubstr("all_reduce on the edge attention.3 -> dense.3"));
  EXPECT_THAT(error, HasSubstr("group [0,1,2,3]"));
  EXPECT_THAT(error, HasSubstr("waiting for rank 2"));
}

TEST(Waiting, DifferentStepsAreAnErrorWithBothNames) {
  const auto grid = grid_of(2, 2);
  const auto errors = on_ranks(grid, {}, [&](int rank, Communicator& communicator) {
    reduce(communicator, grid.all(), {1, rank == 0 ? 4u : 6u, rank == 0 ? "the gather" : "the sum"});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("the gather"));
    EXPECT_THAT(error, HasSubstr("the sum"));
  }
}

TEST(Waiting, OneRanksFailureEndsEveryWait) {
  const auto grid = grid_of(8, 2);
  const auto start = std::chrono::steady_clock::now();
  const auto errors = on_ranks(grid, {}, [&](int rank, Communicator& communicator) {
    if (rank == 3) throw Fatal("rank 3 is out of cheese");
    reduce(communicator, grid.all(), {1, 1, "test"});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "rank 3 is out of cheese");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// Again and again: the rank that finds the fault unwinds what the others may still be reading.
TEST(Waiting, RowsThatDisagreeAreAnErrorNotAWrongSum) {
  const auto grid = grid_of(4, 4);
  for (int round = 0; round < 50; ++round) {
    const auto errors = on_ranks(grid, {}, [&](int rank, Communicator& communicator) {
      const int64_t rows = rank == round % 4 ? 2 : 1;
      auto in = matrix_of(rank, rows, 2), out = in;
      communicator.all_reduce({.in = view_of(in.data(), {rows, 2}), .out = view_of(out.data(), {rows, 2})},
                              grid.all(), {1, 1, "test"});
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("against"));
  }
}

TEST(Waiting, ManyStepsInOverlappingGroupsStayInStep) {
  const auto grid = grid_of(8, 2, 1, 4);
  for (const int cores : {1, 64})  // sleeping and spinning
    for (const std::string& error :
         on_ranks(grid, {.num_cores = cores}, [&](int rank, Communicator& communicator) {
           for (uint32_t step = 0; step < 200; ++step) {
             const AxisSet over(step % grid.all().bits() + 1);
             float in = static_cast<float>(rank + step), out = 0;
             communicator.all_reduce({.in = view_of(&in, {1, 1}), .out = view_of(&out, {1, 1})}, over,
                                     {step, 0, "test"});
             float expected = 0;
             for (const int member : grid.group(rank, over)) expected += static_cast<float>(member + step);
             ASSERT_EQ(out, expected);
           }
         }))
      EXPECT_EQ(error, "");
}

// Kernels that need fences, as a device's do; `breaks` makes a wait fail, as a device's fault would.
class FencedKernels final : public kernels::Kernels {
 public:
  explicit FencedKernels(bool breaks) : breaks_(breaks) {}
  std::string_view name() const override { return "fenced"; }
  std::unique_ptr<kernels::Fence> make_fence() override { return std::make_unique<NoFence>(); }
  void wait(const kernels::Fence&) override {
    if (breaks_) throw Fatal("the device was lost");
  }
  void sum_rows(const kernels::SumRowsArgs& args) override { on_host_->sum_rows(args); }
  void copy_rows(const kernels::CopyRowsArgs& args) override { on_host_->copy_rows(args); }
  void embed(const kernels::EmbedArgs& args) override { on_host_->embed(args); }
  void rms_norm(kernels::RmsNormArgs& args) override { on_host_->rms_norm(args); }
  void add(const kernels::AddArgs& args) override { on_host_->add(args); }
  void linear(const kernels::LinearArgs& args) override { on_host_->linear(args); }
  void matmul(const kernels::MatmulArgs& args) override { on_host_->matmul(args); }
  void silu_mul(const kernels::SiluMulArgs& args) override { on_host_->silu_mul(args); }
  void sigmoid_mul(const kernels::SigmoidMulArgs& args) override { on_host_->sigmoid_mul(args); }
  void rope(const kernels::RopeArgs& args) override { on_host_->rope(args); }
  void route(const kernels::RouteArgs& args) override { on_host_->route(args); }
  void grouped_ffn(const kernels::GroupedFfnArgs& args) override { on_host_->grouped_ffn(args); }
  void cache_write(const kernels::CacheWriteArgs& args) override { on_host_->cache_write(args); }
  void cache_read(const kernels::CacheReadArgs& args) override { on_host_->cache_read(args); }
  void mla_absorbed(const kernels::MlaAbsorbedArgs& args) override { on_host_->mla_absorbed(args); }
  void mla_expanded(const kernels::MlaExpandedArgs& args) override { on_host_->mla_expanded(args); }
  void gqa(const kernels::GqaArgs& args) override { on_host_->gqa(args); }
  void causal_conv(const kernels::CausalConvArgs& args) override { on_host_->causal_conv(args); }
  void l2_norm(const kernels::L2NormArgs& args) override { on_host_->l2_norm(args); }
  void delta_gates(const kernels::DeltaGatesArgs& args) override { on_host_->delta_gates(args); }
  void gated_delta(const kernels::GatedDeltaArgs& args) override { on_host_->gated_delta(args); }
  void sum_add_norm(kernels::SumAddNormArgs& args) override { on_host_->sum_add_norm(args); }
  void place_slots(const kernels::PlaceSlotsArgs& args) override { on_host_->place_slots(args); }
  void pull_weighted(const kernels::PullWeightedArgs& args) override { on_host_->pull_weighted(args); }

 private:
  struct NoFence final : kernels::Fence {};
  const bool breaks_;
  const std::unique_ptr<kernels::Kernels> on_host_ = kernels::make_reference_kernels();
};

// Between meeting and leaving: the others still read what the broken rank shows, and are let go by it. Were
// they not, they would wait without a deadline.
TEST(Failures, ADeviceThatBreaksInsideAnExchangeEndsEveryRank) {
  const auto grid = grid_of(3, 3);
  InProcessWorld world(grid, {.deadline = std::chrono::milliseconds(2000)});
  std::vector<std::string> errors(3);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      FencedKernels kernels(rank == 1);
      const auto communicator = world.communicator(rank, kernels);
      std::vector<float> in(4, 1.0f), out(4);
      try {
        for (uint64_t step = 1; step <= 3; ++step)
          communicator->all_reduce({.in = view_of(in.data(), {2, 2}), .out = view_of(out.data(), {2, 2})},
                                   grid.all(), {step, 2, "test"});
      } catch (const std::exception& failure) {
        errors[static_cast<size_t>(rank)] = failure.what();
        world.fail(failure.what());
      }
    });
  threads.clear();
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("the device was lost"));
}

// While ranks wait, anybody can see for whom and where.
TEST(Waits, NameTheEdgeTheGroupAndWhoIsMissing) {
  const planning::RankGrid grid = grid_of(3, 1);
  InProcessWorld world(grid, {});
  EXPECT_TRUE(world.waits().texts.empty());
  std::vector<std::jthread> ranks;
  for (const int rank : {0, 2})
    ranks.emplace_back([&, rank] {
      const auto kernels = kernels::make_cpu_kernels();
      const auto communicator = world.communicator(rank, *kernels);
      float in = 1, out = 0;
      EXPECT_THROW(
          communicator->all_reduce({.in = view_of(&in, {1, 1}), .out = view_of(&out, {1, 1})}, grid.all(),
                                   {17, 5, "all_reduce on the edge attention.3 -> dense.3"}),
          Fatal);
    });
  InProcessWorld::Waits waits;
  while (waits.ranks.size() < 2) waits = world.waits();
  world.fail("the test is over");
  ranks.clear();
  EXPECT_EQ(waits.ranks, (std::set<int>{0, 2}));
  EXPECT_EQ(waits.texts, std::vector<std::string>{
                             "step 5 of engine step 17 (all_reduce on the edge attention.3 -> dense.3) in "
                             "group [0,1,2]: waiting for rank 1"});
}

}  // namespace
}  // namespace lockstep::collectives::test
