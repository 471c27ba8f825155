#pragma once
// Where the members of one group meet: everyone shows a pointer, waits for the others, reads what they show,
// and leaves together. The only synchronisation between ranks of a process; private to in_process.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/collectives/communicator.h"

namespace lockstep::collectives {

// Shared by all rendezvous of a world: the first failure ends every wait.
struct Failure {
  std::mutex mutex;
  std::string reason;  // guarded by mutex
  std::atomic<bool> happened{false};
};

enum class Waiting : uint8_t {
  kSleep,  // fewer cores than ranks: a spinning rank would keep the one that it waits for from running
  kSpinThenSleep,  // a core for every rank
};

class Rendezvous {
 public:
  Rendezvous(std::vector<int> members, Waiting waiting, std::chrono::milliseconds deadline, Failure& failure);

  // Shows `what` as member `index`, waits until all members have, and returns what all show, in member order.
  // The pointers are good until leave(), which whoever meet() returned to must call, also when it fails.
  // Throws Fatal on another tag, on expiry of the deadline, and when the world failed; then meet() returns to
  // no member, so that nobody reads what an unwinding one showed.
  const std::vector<const void*>& meet(int index, const void* what, const Tag& tag);
  // Waits until every member is done with reading, without a deadline and whatever failed meanwhile: between
  // meet() and leave() a member only copies and adds, or tells its device to, and waits for no other member;
  // its memory must stand until the others have. A member that throws there leaves all the same.
  void leave(int index);

  const std::vector<int>& members() const { return members_; }
  void wake();  // after the world failed

 private:
  enum class Arrival : uint8_t { kLast, kMustWait };
  Arrival arrive(int index);  // under mutex_
  void check_tag(int index, const Tag& tag);
  bool spun_until_passed(uint64_t generation);
  void wait_entering(uint64_t generation, const Tag& tag);
  bool passed(uint64_t generation) const { return generation_.load(std::memory_order_acquire) != generation; }
  std::string expired(const Tag& tag) const;
  // Both under mutex_: once a member has given up entering, whoever comes later sees that and gives up too.
  [[noreturn]] void give_up(std::string reason);
  void throw_if_failed();

  const std::vector<int> members_;
  const Waiting waiting_;
  const std::chrono::milliseconds deadline_;
  Failure& failure_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  size_t num_here_ = 0;     // guarded by mutex_
  std::vector<char> here_;  // guarded by mutex_: who has arrived in this generation
  Tag tag_;                 // guarded by mutex_: of the first to arrive
  int first_ = 0;           // guarded by mutex_: who that was
  std::vector<const void*> shown_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace lockstep::collectives
