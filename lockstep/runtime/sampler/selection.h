#pragma once
// The largest of many values without sorting them all. Everywhere in the sampler "larger" means the larger
// value and, of equal values, the one that stands first. Pure.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::runtime {

struct Entry {
  float value = 0;
  int32_t idx = 0;
  bool operator==(const Entry&) const = default;
};

constexpr bool is_larger(const Entry& a, const Entry& b) {
  return a.value != b.value ? a.value > b.value : a.idx < b.idx;
}

// The `k` largest (all when there are fewer), largest first. Values are not NaN.
std::vector<Entry> largest(std::span<const float> values, size_t k);

// The last of them: `k` is at least 1 and at most the number of values.
Entry kth_largest(std::span<const float> values, size_t k);

// The largest one; values is not empty. -infinity can win only when nothing else is there.
Entry largest_one(std::span<const float> values);

// Values are weights >= 0 with a sum `total` > 0. The smallest of the largest entries that reach `share` of
// the total: an entry belongs to them unless the result is_larger than it.
Entry last_of_share(std::span<const float> weights, double total, double share);

}  // namespace lockstep::runtime
