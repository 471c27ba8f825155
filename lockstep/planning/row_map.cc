#include "lockstep/planning/row_map.h"

namespace lockstep::planning {
namespace {

bool holds(const Layout& layout, int rank, int home, const RankGrid& grid) {
  for (int axis = 0; axis < grid.num_axes(); ++axis)
    if (layout.at(axis) == Placement::kShard && grid.coord(rank, axis) != grid.coord(home, axis))
      return false;
  return true;
}

}  // namespace

std::vector<Segment> segments_of(const Layout& layout, int rank, const RankGrid& grid,
                                 std::span<const int32_t> rows_per_home) {
  LOCKSTEP_CHECK_EQ(static_cast<int>(rows_per_home.size()), grid.num_ranks());
  std::vector<Segment> segments;
  int64_t next = 0;
  for (int home = 0; home < grid.num_ranks(); ++home) {
    if (!holds(layout, rank, home, grid)) continue;
    segments.push_back({home, next, rows_per_home[home]});
    next += rows_per_home[home];
  }
  return segments;
}

int64_t num_rows_of(const Layout& layout, int rank, const RankGrid& grid,
                    std::span<const int32_t> rows_per_home) {
  int64_t rows = 0;
  for (int home = 0; home < grid.num_ranks(); ++home)
    if (holds(layout, rank, home, grid)) rows += rows_per_home[home];
  return rows;
}

}  // namespace lockstep::planning
