#include "lockstep/runtime/kv_cache/slot_pool.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::runtime {

SlotPool::SlotPool(int32_t num_slots) {
  LOCKSTEP_CHECK_GE(num_slots, 0);
  owner_.assign(static_cast<size_t>(num_slots), 0);
}

int32_t SlotPool::take(Owner owner) {
  LOCKSTEP_CHECK(owner != 0, "owner {} cannot hold one of {} slots", owner, num_slots());
  const auto free = std::find(owner_.begin(), owner_.end(), Owner{0});
  LOCKSTEP_CHECK(free != owner_.end(), "all {} slots are taken", num_slots());
  *free = owner;
  ++num_used_;
  return static_cast<int32_t>(free - owner_.begin());
}

void SlotPool::release(int32_t slot, Owner owner) {
  LOCKSTEP_CHECK_EQ(owner_of(slot), owner);
  LOCKSTEP_CHECK(owner != 0, "slot {} of {} is free", slot, num_slots());
  owner_[static_cast<size_t>(slot)] = 0;
  --num_used_;
}

SlotPool::Owner SlotPool::owner_of(int32_t slot) const {
  LOCKSTEP_CHECK_GE(slot, 0);
  LOCKSTEP_CHECK_LT(slot, num_slots());
  return owner_[static_cast<size_t>(slot)];
}

}  // namespace lockstep::runtime
