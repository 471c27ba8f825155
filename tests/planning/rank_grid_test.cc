// Groups and indices against numbers worked out by hand from the two factorizations: attention (TP, DP) and
// experts (TP, EP), fastest first over the same rank number.
#include "lockstep/planning/rank_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace lockstep::planning::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RankGrid grid_of(const GridShape& shape) {
  auto grid = RankGrid::make(shape);
  EXPECT_TRUE(grid.ok());
  return *grid;
}

// The worked example: four ranks, two attention replicas of two, dense layers whole, experts over all four.
TEST(RankGrid, GroupsOfTheWorkedExample) {
  const RankGrid grid = grid_of({.num_ranks = 4, .attention_tp = 2, .expert_tp = 1, .dense_tp = 1});
  ASSERT_EQ(grid.num_axes(), 2);
  EXPECT_EQ(grid.axes()[0].name, "tp");
  EXPECT_EQ(grid.axes()[0].size, 2);
  EXPECT_EQ(grid.axes()[0].stride, 1);
  EXPECT_EQ(grid.axes()[1].name, "dp");
  EXPECT_EQ(grid.axes()[1].stride, 2);
  EXPECT_EQ(grid.num_replicas(), 2);
  EXPECT_THAT(grid.group(0, grid.attention_tp()), ElementsAre(0, 1));
  EXPECT_THAT(grid.group(3, grid.attention_tp()), ElementsAre(2, 3));
  EXPECT_THAT(grid.group(1, grid.attention_dp()), ElementsAre(1, 3));
  EXPECT_THAT(grid.group(2, grid.all()), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(grid.group(2, AxisSet()), ElementsAre(2));
  EXPECT_EQ(grid.expert_parallel(), grid.all());
  EXPECT_TRUE(grid.dense_tp().empty());
  EXPECT_EQ(grid.replica_of(1), 0);
  EXPECT_EQ(grid.replica_of(2), 1);
  EXPECT_EQ(grid.name_of(grid.all()), "dp,tp");
  EXPECT_EQ(grid.name_of(AxisSet()), "-");
}

// Eight ranks, A = 4 (D = 2), T = 2 (E = 4), N = 1: cuts at 1, 2, 4, 8.
TEST(RankGrid, RefinesToAtomicAxes) {
  const RankGrid grid = grid_of({.num_ranks = 8, .attention_tp = 4, .expert_tp = 2, .dense_tp = 1});
  ASSERT_EQ(grid.num_axes(), 3);
  EXPECT_EQ(grid.axes()[0].name, "tp0");
  EXPECT_EQ(grid.axes()[1].name, "tp1");
  EXPECT_EQ(grid.axes()[2].name, "dp");
  EXPECT_THAT((std::vector<int>{grid.axes()[0].stride, grid.axes()[1].stride, grid.axes()[2].stride}),
              ElementsAre(1, 2, 4));
  // Attention-TP rank r mod 4 in contiguous blocks; experts' TP r mod 2; expert rank (r div 2) mod 4.
  EXPECT_THAT(grid.group(6, grid.attention_tp()), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(grid.group(6, grid.expert_tp()), ElementsAre(6, 7));
  EXPECT_THAT(grid.group(1, grid.expert_parallel()), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(grid.group(5, grid.attention_dp()), ElementsAre(1, 5));
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(grid.index_in_group(rank, grid.attention_tp()), rank % 4);
    EXPECT_EQ(grid.index_in_group(rank, grid.attention_dp()), rank / 4);
    EXPECT_EQ(grid.index_in_group(rank, grid.expert_tp()), rank % 2);
    EXPECT_EQ(grid.index_in_group(rank, grid.expert_parallel()), rank / 2);
    EXPECT_EQ(grid.index_in_group(rank, grid.all()), rank);
    EXPECT_EQ(grid.index_in_group(rank, AxisSet()), 0);
  }
}

TEST(RankGrid, NumbersTheAxesOfARefinedReplicaAxis) {
  // Attention of two ranks, experts and dense layers cut the replicas: 1, 2, 4, 12.
  const RankGrid grid = grid_of({.num_ranks = 12, .attention_tp = 2, .expert_tp = 4, .dense_tp = 12});
  ASSERT_EQ(grid.num_axes(), 3);
  EXPECT_EQ(grid.axes()[0].name, "tp");
  EXPECT_EQ(grid.axes()[1].name, "dp0");
  EXPECT_EQ(grid.axes()[2].name, "dp1");
  EXPECT_EQ(grid.axes()[2].size, 3);
  EXPECT_EQ(grid.name_of(grid.attention_dp()), "dp1,dp0");
  EXPECT_EQ(grid.size(grid.attention_dp()), 6);
  EXPECT_EQ(grid.coord(11, 2), 2);
  EXPECT_EQ(grid.coord(11, 1), 1);
  EXPECT_EQ(grid.coord(11, 0), 1);
}

TEST(RankGrid, OneRankHasNoAxes) {
  const RankGrid grid = grid_of({});
  EXPECT_EQ(grid.num_axes(), 0);
  EXPECT_TRUE(grid.all().empty());
  EXPECT_EQ(grid.num_replicas(), 1);
  EXPECT_THAT(grid.group(0, grid.all()), ElementsAre(0));
}

// A = 1 leaves no attention-TP axis, D = 1 no replica axis: nothing of size one is an axis.
TEST(RankGrid, HasNoAxisOfSizeOne) {
  for (const GridShape& shape : {GridShape{8, 1, 1, 1}, GridShape{8, 8, 8, 8}, GridShape{8, 1, 8, 2}}) {
    const RankGrid grid = grid_of(shape);
    for (const AtomicAxis& axis : grid.axes()) EXPECT_GT(axis.size, 1);
  }
  EXPECT_TRUE(grid_of({8, 1, 1, 1}).attention_tp().empty());
  EXPECT_TRUE(grid_of({8, 8, 8, 8}).attention_dp().empty());
}

TEST(RankGrid, GroupsPartitionTheRanks) {
  const RankGrid grid = grid_of({.num_ranks = 24, .attention_tp = 4, .expert_tp = 2, .dense_tp = 12});
  ASSERT_EQ(grid.num_axes(), 4);
  for (uint32_t bits = 0; bits <= grid.all().bits(); ++bits) {
    const AxisSet over(bits);
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < 24; ++rank) {
      const auto group = grid.group(rank, over);
      ASSERT_EQ(static_cast<int>(group.size()), grid.size(over));
      EXPECT_EQ(group[grid.index_in_group(rank, over)], rank);
      for (const int member : group) EXPECT_EQ(grid.group(member, over), group);
      groups.insert(group);
    }
    EXPECT_EQ(static_cast<int>(groups.size()) * grid.size(over), 24);
  }
}

TEST(RankGrid, RefusesWidthsThatDoNotNestAndNamesBoth) {
  const auto grid = RankGrid::make({.num_ranks = 6, .attention_tp = 3, .expert_tp = 2, .dense_tp = 6});
  ASSERT_FALSE(grid.ok());
  EXPECT_EQ(grid.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(grid.error().message, HasSubstr("experts' TP width 2"));
  EXPECT_THAT(grid.error().message, HasSubstr("attention-TP width 3"));
  EXPECT_FALSE(RankGrid::make({.num_ranks = 12, .attention_tp = 4, .expert_tp = 4, .dense_tp = 6}).ok());
  EXPECT_TRUE(RankGrid::make({.num_ranks = 12, .attention_tp = 6, .expert_tp = 3, .dense_tp = 1}).ok());
}

TEST(RankGrid, RefusesWidthsThatDoNotDivide) {
  const auto grid = RankGrid::make({.num_ranks = 8, .attention_tp = 3});
  ASSERT_FALSE(grid.ok());
  EXPECT_THAT(grid.error().message, HasSubstr("attention-TP width 3 does not divide the 8 ranks"));
  EXPECT_FALSE(RankGrid::make({.num_ranks = 0}).ok());
  EXPECT_FALSE(RankGrid::make({.num_ranks = 8, .attention_tp = 0}).ok());
  EXPECT_FALSE(RankGrid::make({.num_ranks = 8, .dense_tp = -2}).ok());
  EXPECT_FALSE(RankGrid::make({.num_ranks = 4, .expert_tp = 8}).ok());
}

TEST(RankGrid, ReadsTheNamesThatItWrites) {
  const RankGrid grid = grid_of({.num_ranks = 24, .attention_tp = 4, .expert_tp = 2, .dense_tp = 12});
  for (uint32_t bits = 0; bits <= grid.all().bits(); ++bits) {
    const auto axes = grid.axes_named(grid.name_of(AxisSet(bits)));
    ASSERT_TRUE(axes.ok());
    EXPECT_EQ(*axes, AxisSet(bits));
  }
  for (const char* wrong : {"", "tp", "tp0,", ",tp0", "tp0,tp0", "tp0, tp1", "dp2"})
    EXPECT_FALSE(grid.axes_named(wrong).ok()) << '"' << wrong << '"';
  EXPECT_THAT(grid.axes_named("ep").error().message, HasSubstr("dp1,dp0,tp1,tp0"));
}

}  // namespace
}  // namespace lockstep::planning::test
