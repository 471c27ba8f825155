#pragma once
// Which rows a rank holds under a layout, as segments. Rows of one home rank stand together everywhere, so
// every exchange moves whole segments and every rank computes the same offsets from the same table.
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/planning/layout.h"

namespace lockstep::planning {

// The rows of one home rank inside the buffer of a rank that holds them.
struct Segment {
  int home = 0;
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

// Ascending by home, so a replica's rows are contiguous and in their order. rows_per_home has one entry a
// rank.
std::vector<Segment> segments_of(const Layout& layout, int rank, const RankGrid& grid,
                                 std::span<const int32_t> rows_per_home);
int64_t num_rows_of(const Layout& layout, int rank, const RankGrid& grid,
                    std::span<const int32_t> rows_per_home);

}  // namespace lockstep::planning
