#include "lockstep/planning/row_map.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::planning::test {
namespace {

using enum Placement;

RankGrid example_grid() {
  return *RankGrid::make({.num_ranks = 4, .attention_tp = 2, .expert_tp = 1, .dense_tp = 1});
}

// One number a row, by (home, place): what a buffer of one rank holds under a layout.
std::vector<int64_t> buffer_of(const Layout& layout, int rank, const RankGrid& grid,
                               const std::vector<int32_t>& rows_per_home) {
  std::vector<int64_t> buffer(num_rows_of(layout, rank, grid, rows_per_home), -1);
  for (const Segment& segment : segments_of(layout, rank, grid, rows_per_home))
    for (int64_t row = 0; row < segment.num_rows; ++row)
      buffer.at(segment.first_row + row) = 1000 * segment.home + row;
  return buffer;
}

// The worked example's padded counts 4 and 2: two rows at home on ranks 0 and 1, one on ranks 2 and 3.
TEST(RowMap, SegmentsOfUnevenReplicas) {
  const RankGrid grid = example_grid();
  const std::vector<int32_t> rows = {2, 2, 1, 1};
  const Layout by_replica = Layout().with(grid.attention_dp(), kShard);
  const Layout at_home = Layout().with(grid.all(), kShard);
  const Layout by_slice = Layout().with(grid.attention_tp(), kShard);

  EXPECT_EQ(buffer_of(Layout(), 3, grid, rows), (std::vector<int64_t>{0, 1, 1000, 1001, 2000, 3000}));
  EXPECT_EQ(buffer_of(by_replica, 0, grid, rows), (std::vector<int64_t>{0, 1, 1000, 1001}));
  EXPECT_EQ(buffer_of(by_replica, 3, grid, rows), (std::vector<int64_t>{2000, 3000}));
  EXPECT_EQ(buffer_of(at_home, 1, grid, rows), (std::vector<int64_t>{1000, 1001}));
  EXPECT_EQ(buffer_of(at_home, 2, grid, rows), (std::vector<int64_t>{2000}));
  // The first slice of every replica.
  EXPECT_EQ(buffer_of(by_slice, 2, grid, rows), (std::vector<int64_t>{0, 1, 2000}));
  // Addends and slices of features do not change which rows there are.
  EXPECT_EQ(buffer_of(by_replica.with(grid.attention_tp(), kPartial), 0, grid, rows),
            buffer_of(by_replica, 0, grid, rows));
  EXPECT_EQ(buffer_of(by_replica.with(grid.attention_tp(), kColumns), 0, grid, rows),
            buffer_of(by_replica, 0, grid, rows));
}

TEST(RowMap, AnIdleReplicaHoldsNothingAndShiftsNobody) {
  const RankGrid grid = example_grid();
  const std::vector<int32_t> rows = {0, 0, 3, 3};
  EXPECT_EQ(num_rows_of(Layout().with(grid.attention_dp(), kShard), 0, grid, rows), 0);
  EXPECT_EQ(buffer_of(Layout(), 0, grid, rows), (std::vector<int64_t>{2000, 2001, 2002, 3000, 3001, 3002}));
  for (const Segment& segment : segments_of(Layout(), 0, grid, rows))
    EXPECT_EQ(segment.first_row, segment.home < 3 ? 0 : 3) << segment.home;
}

TEST(RowMap, RefusesATableOfAnotherSize) {
  const RankGrid grid = example_grid();
  const std::vector<int32_t> two = {1, 1};
  EXPECT_THROW(segments_of(Layout(), 0, grid, two), Fatal);
}

// For every layout, every set of sharded axes and every rank: the members' slices, put together by home, are
// exactly what the rank holds when those axes are gathered.
TEST(RowMap, AGatherOfSlicesIsTheIdentity) {
  const RankGrid grid = *RankGrid::make({.num_ranks = 12, .attention_tp = 6, .expert_tp = 3, .dense_tp = 1});
  ASSERT_EQ(grid.num_axes(), 3);
  const std::vector<int32_t> rows = {2, 0, 1, 3, 0, 0, 5, 1, 1, 0, 2, 4};
  int num_checked = 0;
  for (uint32_t sharded = 0; sharded <= grid.all().bits(); ++sharded)
    for (uint32_t over = sharded; over != 0; over = (over - 1) & sharded) {
      const Layout sliced = Layout().with(AxisSet(sharded), kShard);
      const Layout whole = sliced.with(AxisSet(over), kReplicate);
      for (int rank = 0; rank < grid.num_ranks(); ++rank) {
        std::map<int64_t, int> arrived;
        for (const int member : grid.group(rank, AxisSet(over)))
          for (const int64_t row : buffer_of(sliced, member, grid, rows)) ++arrived[row];
        std::vector<int64_t> gathered;
        for (const auto& [row, times] : arrived) {
          EXPECT_EQ(times, 1) << row;
          gathered.push_back(row);
        }
        EXPECT_EQ(gathered, buffer_of(whole, rank, grid, rows));
        ++num_checked;
      }
    }
  EXPECT_EQ(num_checked, (27 - 8) * 12);  // pairs of nested subsets of three axes, the empty `over` left out
}

}  // namespace
}  // namespace lockstep::planning::test
