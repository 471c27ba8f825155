#pragma once
// (left id, right id) -> rank and joined id: an open-addressing table, for the pairs of the hot loop.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::serving::tokenizing {

class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;  // -1: the pair does not merge
    int32_t joined = -1;
  };

  explicit MergeTable(size_t num_merges);
  // A pair that stands twice keeps its last rank.
  void set(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair of ids: both are below 2^31
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;
};

}  // namespace lockstep::serving::tokenizing
