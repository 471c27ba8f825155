#include "lockstep/runtime/kv_cache/snapshot_pool.h"

#include "lockstep/base/check.h"

namespace lockstep::runtime {

SnapshotPool::SnapshotPool(int32_t first_slot, int32_t num_snapshots) : first_slot_(first_slot) {
  LOCKSTEP_CHECK_GE(num_snapshots, 0);
  page_of_.assign(static_cast<size_t>(num_snapshots), kFree);
  for (int32_t i = num_snapshots - 1; i >= 0; --i) free_.push_back(first_slot + i);
}

size_t SnapshotPool::idx(int32_t slot) const {
  LOCKSTEP_CHECK_GE(slot, first_slot_);
  LOCKSTEP_CHECK_LT(slot, first_slot_ + size());
  return static_cast<size_t>(slot - first_slot_);
}

int32_t SnapshotPool::at(int32_t page) const {
  const auto found = slot_of_page_.find(page);
  return found == slot_of_page_.end() ? kNone : *found->second;
}

int32_t SnapshotPool::take() {
  if (free_.empty()) {
    if (kept_.empty()) return kNone;
    drop(page_of_[idx(kept_.front())]);
  }
  const int32_t slot = free_.back();
  free_.pop_back();
  page_of_[idx(slot)] = kTaken;
  return slot;
}

void SnapshotPool::keep(int32_t slot, int32_t page) {
  LOCKSTEP_CHECK_EQ(page_of_[idx(slot)], kTaken);
  LOCKSTEP_CHECK_EQ(at(page), kNone);
  page_of_[idx(slot)] = page;
  slot_of_page_.emplace(page, kept_.insert(kept_.end(), slot));
}

void SnapshotPool::give_back(int32_t slot) {
  LOCKSTEP_CHECK_EQ(page_of_[idx(slot)], kTaken);
  page_of_[idx(slot)] = kFree;
  free_.push_back(slot);
}

void SnapshotPool::touch(int32_t page) {
  if (const auto found = slot_of_page_.find(page); found != slot_of_page_.end())
    kept_.splice(kept_.end(), kept_, found->second);
}

void SnapshotPool::drop(int32_t page) {
  const auto found = slot_of_page_.find(page);
  if (found == slot_of_page_.end()) return;
  const int32_t slot = *found->second;
  page_of_[idx(slot)] = kFree;
  free_.push_back(slot);
  kept_.erase(found->second);
  slot_of_page_.erase(found);
}

}  // namespace lockstep::runtime
