// Rows of prompts in zigzag: every row has one place, every rank as many as in order, and all look back about
// as far.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lockstep/planning/verifier.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

using ::testing::ElementsAre;

// By hand: 8 rows on two ranks. Rank 0 has the first and the last quarter, rank 1 those between.
TEST(Zigzag, GivesEachRankAnEarlyRunAndALateOne) {
  EXPECT_THAT(zigzag_places(8, std::vector<int32_t>{8}, 8, 2), ElementsAre(0, 1, 4, 5, 6, 7, 2, 3));
  // Two prompts of four: a quarter of each from both ends.
  EXPECT_THAT(zigzag_places(8, std::vector<int32_t>{4, 4}, 8, 2), ElementsAre(0, 4, 5, 1, 2, 6, 7, 3));
  // Rows that decode stay first; the last place of eight is padding.
  EXPECT_THAT(zigzag_places(7, std::vector<int32_t>{5}, 8, 2), ElementsAre(0, 1, 2, 4, 5, 6, 3));
}

TEST(Zigzag, LeavesRowsInOrderWhereThereIsNothingToShare) {
  EXPECT_TRUE(zigzag_places(0, {}, 0, 4).empty());
  EXPECT_THAT(zigzag_places(3, {}, 4, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(zigzag_places(1, std::vector<int32_t>{1}, 4, 4), ElementsAre(0));
  EXPECT_THAT(zigzag_places(4, std::vector<int32_t>{4}, 4, 1), ElementsAre(0, 1, 2, 3));
}

TEST(Zigzag, IsAPermutationOfTheRowsWhateverTheirLengths) {
  for (const int32_t ranks : {1, 2, 3, 4, 8})
    for (const int32_t width : {1, 2, 3})
      for (int32_t decodes = 0; decodes < 4; ++decodes)
        for (int32_t first = 0; first < 20; ++first)
          for (const int32_t second : {0, 1, 7, 50}) {
            std::vector<int32_t> prompts;
            for (const int32_t rows : {first, second})
              if (rows > 0) prompts.push_back(rows);
            const int32_t rows = decodes + first + second;
            const int32_t padded = round_up(rows, ranks * width);
            auto places = zigzag_places(rows, prompts, padded, ranks);
            // What a rank has of one prompt ascends.
            std::vector<int32_t> last(static_cast<size_t>(ranks), -1);
            for (int32_t row = decodes; row < decodes + first; ++row) {
              int32_t& before =
                  last[static_cast<size_t>(places[static_cast<size_t>(row)] / (padded / ranks))];
              EXPECT_LT(before, places[static_cast<size_t>(row)]);
              before = places[static_cast<size_t>(row)];
            }
            std::sort(places.begin(), places.end());
            std::vector<int32_t> all(static_cast<size_t>(rows));
            std::iota(all.begin(), all.end(), 0);
            ASSERT_EQ(places, all) << ranks << " ranks, " << decodes << " + " << first << " + " << second;
          }
}

// Tokens that a rank's rows see, of all ranks the most over the fewest.
double imbalance(const std::vector<int32_t>& places, int32_t padded, int32_t ranks) {
  std::vector<double> seen(static_cast<size_t>(ranks), 0);
  for (size_t row = 0; row < places.size(); ++row)
    seen[static_cast<size_t>(places[row] / (padded / ranks))] += static_cast<double>(row + 1);
  return *std::max_element(seen.begin(), seen.end()) / *std::min_element(seen.begin(), seen.end());
}

TEST(Zigzag, AllRanksLookBackAboutAsFar) {
  for (const int32_t ranks : {2, 4, 8})
    for (const int32_t rows : {512, 1000, 4096}) {
      const int32_t padded = round_up(rows, ranks);
      std::vector<int32_t> in_order(static_cast<size_t>(rows));
      std::iota(in_order.begin(), in_order.end(), 0);
      EXPECT_LT(imbalance(zigzag_places(rows, std::vector<int32_t>{rows}, padded, ranks), padded, ranks),
                1.05);
      EXPECT_GT(imbalance(in_order, padded, ranks), 2.5) << "contiguous shares differ by 2 C - 1";
    }
}

TEST(Zigzag, HoldsInPrefillStepsOnly) {
  const auto solved = solve({.tp_size = 4,
                             .dp_size = 2,
                             .enable_dp_attention = true,
                             .attn_cp_size = 2,
                             .max_running_requests = 8,
                             .chunked_prefill_size = 32},
                            mixed_model(), h200_machine());
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->grid.row_shares, RowShares::kZigzag);
  const RankGrid grid = *RankGrid::make(solved->grid);
  const StepShape shape = step_shape(grid, solved->capacity);
  const ReplicaCounts prompt{
      .num_requests = 2, .num_target_rows = 9, .logit_rows = {0, 8}, .prompt_rows = {8}};
  const ReplicaCounts decode{.num_requests = 1, .num_target_rows = 1, .logit_rows = {0}};
  const StepPlan prefill = make_step_plan(0, shape, {prompt, decode});
  ASSERT_EQ(prefill.regime, Regime::kPrefill);
  EXPECT_THAT(prefill.places, ElementsAre(ElementsAre(0, 1, 2, 5, 6, 7, 8, 3, 4), ElementsAre(0)));
  // The last row of the prompt is at home on the first rank.
  EXPECT_THAT(prefill.logit_rows_per_home, ElementsAre(2, 0, 1, 0));
  EXPECT_EQ(home_of(prefill, shape, 0, 8).home, 0);
  EXPECT_THAT(wanted_by_place(prefill, 0), ElementsAre(0, 8));
  EXPECT_THAT(rows_by_place(prefill, 0), ElementsAre(0, 1, 2, 7, 8, 3, 4, 5, 6));
  EXPECT_TRUE(make_step_plan(0, shape, {decode, decode}).places.empty());
  EXPECT_NE(prefill.hash, [&] {
    StepPlan other = prefill;
    std::swap(other.places[0][1], other.places[0][2]);
    return hash_of(other);
  }());
  const auto plans = make_plans(*solved, mixed_model(), h200_machine());
  ASSERT_TRUE(plans.ok());
  EXPECT_TRUE(verify(plans->prefill, plans->chain, plans->grid, prefill).empty());
}

TEST(Zigzag, IsRefusedWhereRowsMustStandInOrder) {
  ModelShape recurrent = mixed_model();
  recurrent.rows_in_order_because = "it is recurrent";
  ParallelFlags flags{.tp_size = 4, .attn_cp_size = 2};
  EXPECT_EQ(solve(flags, recurrent, h200_machine())->grid.row_shares, RowShares::kContiguous);
  flags.cp_strategy = "contiguous";
  EXPECT_EQ(solve(flags, mixed_model(), h200_machine())->grid.row_shares, RowShares::kContiguous);
  flags.cp_strategy = "zigzag";
  EXPECT_EQ(solve(flags, mixed_model(), h200_machine())->grid.row_shares, RowShares::kZigzag);
  const auto says = [&](const ParallelFlags& wrong, const ModelShape& model) {
    const auto solved = solve(wrong, model, h200_machine());
    return solved ? std::string() : solved.error().message;
  };
  EXPECT_THAT(says(flags, recurrent), ::testing::HasSubstr("it is recurrent"));
  flags.cp_strategy = "interleave";
  EXPECT_THAT(says(flags, mixed_model()), ::testing::HasSubstr("zigzag, contiguous"));
}

}  // namespace
}  // namespace lockstep::planning::test
