#pragma once
// Which slot of one replica's cache belongs to which running sequence. A slot is the place of what layers
// keep once a sequence (a recurrent state), where a page is the place of what they keep for every token;
// whoever runs has one. A copy of a slot is all of a sequence that its pages do not hold. Bookkeeping only:
// the bytes are the executor's, and a sequence that starts does not read what its slot held before. One
// thread.
#include <cstdint>
#include <vector>

namespace lockstep::runtime {

class SlotPool {
 public:
  using Owner = uint64_t;  // a RequestId; 0 owns nothing

  explicit SlotPool(int32_t num_slots);

  int32_t num_slots() const { return static_cast<int32_t>(owner_.size()); }
  int32_t num_used() const { return num_used_; }
  int32_t num_free() const { return num_slots() - num_used_; }

  int32_t take(Owner owner);  // the lowest that is free; there must be one
  // A slot that `owner` does not hold is a bug.
  void release(int32_t slot, Owner owner);
  Owner owner_of(int32_t slot) const;

 private:
  std::vector<Owner> owner_;  // [slots]; 0 is free
  int32_t num_used_ = 0;
};

}  // namespace lockstep::runtime
