#pragma once
// What each rank holds of one logical [rows, features] value. Placements in the sense of DTensor and of
// OneFlow's SBP (Yuan et al. 2021), one for each atomic axis of the grid.
//
// Every row has a home rank: the attention replica that owns it gives its DP coordinate, its place in the
// padded replica its TP coordinate. Under Shard a rank holds only the rows at home at its own coordinate of
// that axis. So placements of different axes do not influence each other, and two layouts are equal exactly
// when every rank holds the same thing. How many rows each home has in a step is data (StepPlan), not layout.
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/planning/rank_grid.h"

namespace lockstep::planning {

enum class Placement : uint8_t {
  kReplicate,  // every rank along the axis holds the same rows
  kShard,      // a rank holds the rows at home at its coordinate
  kPartial,    // every rank holds an addend; the value is their sum
  kColumns,    // every rank holds the same rows and a slice of their features
};

class Layout {
 public:
  constexpr Layout() = default;  // Replicate along every axis

  constexpr Placement at(int axis) const { return static_cast<Placement>((bits_ >> (2 * axis)) & 3U); }
  constexpr Layout with(AxisSet over, Placement placement) const {
    Layout changed = *this;
    for (int axis = 0; axis < kMaxAxes; ++axis) {
      if (!over.has(axis)) continue;
      changed.bits_ &= ~(3U << (2 * axis));
      changed.bits_ |= static_cast<uint32_t>(placement) << (2 * axis);
    }
    return changed;
  }
  AxisSet axes_with(Placement placement, const RankGrid& grid) const {
    AxisSet set;
    for (int axis = 0; axis < grid.num_axes(); ++axis)
      if (at(axis) == placement) set = set | AxisSet::of(axis);
    return set;
  }
  // Two bits an axis, the first axis lowest: below 4^num_axes.
  constexpr uint32_t bits() const { return bits_; }
  constexpr auto operator<=>(const Layout&) const = default;

 private:
  uint32_t bits_ = 0;
};
static_assert(2 * kMaxAxes <= 32);

// "Shard(dp) Partial(tp)"; axes with Replicate are not written, a layout without others is "Replicate".
std::string to_text(const Layout& layout, const RankGrid& grid);
// Reads what to_text writes. An axis that is named twice, or in two placements, is an error.
Result<Layout> layout_from_text(std::string_view text, const RankGrid& grid);

}  // namespace lockstep::planning
