#include "lockstep/serving/tokenizer/merge_table.h"

#include <bit>

#include "lockstep/base/hash.h"

namespace lockstep::serving::tokenizing {

MergeTable::MergeTable(size_t num_merges) : slots_(std::bit_ceil(2 * num_merges + 2)) {}

size_t MergeTable::slot_of(uint64_t key) const {
  size_t slot = mix64(key) & (slots_.size() - 1);
  while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  slots_[slot_of(key)] = {key, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  return slots_[slot_of(key)].merge;
}

}  // namespace lockstep::serving::tokenizing
