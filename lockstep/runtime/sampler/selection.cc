#include "lockstep/runtime/sampler/selection.h"

#include <algorithm>
#include <array>
#include <limits>

#include "lockstep/base/check.h"

namespace lockstep::runtime {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Keeps the k largest of at least k entries, the smallest of them at the end.
void keep_largest(std::vector<Entry>& entries, size_t k) {
  std::nth_element(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(k - 1), entries.end(),
                   is_larger);
  entries.resize(k);
}

// The k largest in no order, the smallest of them at the end; 1 <= k <= the number of values. One pass with a
// reservoir of 2k: whenever it is full its smaller half goes, and only what is larger than all that went may
// enter from then on. Positions ascend, so an equal value that comes later is never the larger one.
std::vector<Entry> select_largest(std::span<const float> values, size_t k) {
  const size_t limit = std::max<size_t>(2 * k, 64);
  std::vector<Entry> entries;
  entries.reserve(std::min(limit, values.size()));
  float threshold = kLowest;
  bool is_full = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_full && !(values[i] > threshold)) continue;
    entries.push_back({values[i], static_cast<int32_t>(i)});
    if (entries.size() < limit) continue;
    keep_largest(entries, k);
    threshold = entries.back().value;
    is_full = true;
  }
  keep_largest(entries, k);
  return entries;
}

}  // namespace

std::vector<Entry> largest(std::span<const float> values, size_t k) {
  k = std::min(k, values.size());
  if (k == 0) return {};
  std::vector<Entry> entries = select_largest(values, k);
  std::sort(entries.begin(), entries.end(), is_larger);
  return entries;
}

Entry kth_largest(std::span<const float> values, size_t k) {
  LOCKSTEP_CHECK_LE(size_t{1}, k);
  LOCKSTEP_CHECK_LE(k, values.size());
  return select_largest(values, k).back();
}

Entry largest_one(std::span<const float> values) {
  LOCKSTEP_CHECK_LE(size_t{1}, values.size());
  constexpr size_t kLanes = 16;  // independent maxima, which compilers turn into vector code
  std::array<float, kLanes> lanes;
  lanes.fill(kLowest);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
  const float most = *std::max_element(lanes.begin(), lanes.end());
  const auto found = std::find(values.begin(), values.end(), most);
  return {most, static_cast<int32_t>(found - values.begin())};
}

Entry last_of_share(std::span<const float> weights, double total, double share) {
  // All weights below this bound together are less than what may be left out, so the result is not among
  // them.
  const double bound = (1.0 - share) * total / static_cast<double>(weights.size());
  std::vector<Entry> entries;
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i] > 0 && weights[i] >= bound) entries.push_back({weights[i], static_cast<int32_t>(i)});
  LOCKSTEP_CHECK_LE(size_t{1}, entries.size());

  // A quickselect by mass: [begin, end) holds the result, `missing` is what the larger ones before begin do
  // not reach.
  double missing = share * total;
  auto begin = entries.begin(), end = entries.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, is_larger);
    double mass = 0;
    for (auto it = begin; it != middle; ++it) mass += static_cast<double>(it->value);
    if (mass >= missing) {
      end = middle;
    } else {
      begin = middle;
      missing -= mass;
    }
  }
  return *begin;
}

}  // namespace lockstep::runtime
