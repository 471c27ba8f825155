#pragma once
// How n things are split over parts: balanced, contiguous, in order, whether or not parts divides n. One rule
// for heads, widths, experts and vocabulary, so that whoever slices a weight and whoever routes to it agree.
#include <cstdint>

namespace lockstep {

struct Range {
  int64_t begin = 0, end = 0;
  constexpr int64_t size() const { return end - begin; }
  constexpr bool contains(int64_t at) const { return begin <= at && at < end; }
};

// Part `index` of `parts`; empty for some parts when parts > total.
constexpr Range split_range(int64_t total, int64_t parts, int64_t index) {
  return {total * index / parts, total * (index + 1) / parts};
}

// The part that holds element `at`: split_range(total, parts, owner_of(total, parts, at)).contains(at).
constexpr int64_t owner_of(int64_t total, int64_t parts, int64_t at) {
  return ((at + 1) * parts - 1) / total;
}

}  // namespace lockstep
