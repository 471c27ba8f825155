#pragma once
// Places for copies of slots, by the page with whose last token the copied state ends. Bookkeeping only: the
// executor copies (SequenceRows). One thread. Part of ReplicaCache.
#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

namespace lockstep::runtime {

class SnapshotPool {
 public:
  static constexpr int32_t kNone = -1;

  // Places first_slot … first_slot + num_snapshots - 1: the numbers go on after those of the running
  // sequences' slots.
  SnapshotPool(int32_t first_slot, int32_t num_snapshots);

  int32_t size() const { return static_cast<int32_t>(page_of_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_kept() const { return static_cast<int32_t>(slot_of_page_.size()); }

  int32_t at(int32_t page) const;  // kNone where there is none
  // A place to copy to: a free one, else that of the snapshot used longest ago; kNone where all are taken.
  int32_t take();
  // What was copied to a taken place belongs to `page`, which has no snapshot.
  void keep(int32_t slot, int32_t page);
  void give_back(int32_t slot);  // a taken one
  void touch(int32_t page);      // it was used
  void drop(int32_t page);       // where there is one: the page is about to hold something else

 private:
  size_t idx(int32_t slot) const;
  static constexpr int32_t kFree = -1, kTaken = -2;

  int32_t first_slot_;
  std::vector<int32_t> page_of_;  // [places]; or kFree, kTaken
  std::vector<int32_t> free_;
  std::list<int32_t> kept_;  // slots, the one used longest ago first
  std::unordered_map<int32_t, std::list<int32_t>::iterator> slot_of_page_;
};

}  // namespace lockstep::runtime
