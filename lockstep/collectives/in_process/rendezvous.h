#pragma once
// Where the members of one group meet: everyone shows a pointer, waits for the others, reads what they show,
// and leaves together. Members of other processes are met as well: what they show comes with
// show_from_afar(). The only synchronisation between ranks of a process; private to in_process.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/communicator.h"
#include "lockstep/collectives/in_process/shown.h"

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
  // Members of another process: [first, first + num) of the group.
  struct Abroad {
    int process = 0;
    size_t first = 0, num = 0;
  };
  struct Group {
    std::vector<int> members;
    uint32_t number = 0;  // among all groups of the grid, the same in every process
    std::vector<Abroad> abroad;
  };
  Rendezvous(Group group, Waiting waiting, std::chrono::milliseconds deadline, Failure& failure);

  // Shows `what` as member `index`, waits until all members have, and returns what all show, in member order.
  // The pointers are good until leave(), which whoever meet() returned to must call, also when it fails.
  // Throws Fatal on another tag, on expiry of the deadline, and when the world failed; then meet() returns to
  // no member, so that nobody reads what an unwinding one showed.
  const std::vector<const void*>& meet(int index, const void* what, const Tag& tag);
  // Waits until every member is done with reading, without a deadline and whatever failed meanwhile: between
  // meet() and leave() a member only copies and adds, or tells its device to, and waits for no other member;
  // its memory must stand until the others have. A member that throws there leaves all the same.
  void leave(int index);

  // What a member of another process shows, which may be one meeting ahead of this process: it stands until
  // the members here have left. Fatal like meet().
  void show_from_afar(int rank, ShownFromAfar shown);

  const std::vector<int>& members() const { return members_; }
  const std::vector<Abroad>& abroad() const { return abroad_; }
  uint32_t number() const { return number_; }
  // Who waits here now, and for whom; from any thread.
  struct Pending {
    std::vector<int> waiting;
    std::string text;  // names step, group and the missing ranks
  };
  std::optional<Pending> pending();
  void wake();  // after the world failed

 private:
  enum class Arrival : uint8_t { kLast, kMustWait };
  enum class Phase : uint8_t { kEntering, kLeaving };
  // These four under mutex_.
  Arrival arrive(int index);
  void take_from_afar(size_t index);
  void take_all_from_afar();
  std::string disagreement(int index, const Tag& tag);  // empty: none
  bool spun_until_passed(uint64_t generation);
  void wait_entering(uint64_t generation, const Tag& tag);
  bool passed(uint64_t generation) const { return generation_.load(std::memory_order_acquire) != generation; }
  std::string place_of(const Tag& tag) const;  // under mutex_
  std::string expired(const Tag& tag) const;   // under mutex_
  // Both under mutex_: once a member has given up entering, whoever comes later sees that and gives up too.
  void record_failure(std::string reason);
  [[noreturn]] void give_up(std::string reason);
  void throw_if_failed();

  // Of a member of another process: what is read now, and what came for the next meeting.
  struct FromAfar {
    ShownFromAfar now, next;
  };

  const std::vector<int> members_;
  const uint32_t number_;
  const std::vector<Abroad> abroad_;
  size_t num_abroad_ = 0;
  const Waiting waiting_;
  const std::chrono::milliseconds deadline_;
  Failure& failure_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  Phase phase_ = Phase::kEntering;  // guarded by mutex_
  std::vector<FromAfar> far_;       // [members], guarded by mutex_; empty where all are here
  size_t num_here_ = 0;             // guarded by mutex_
  std::vector<char> here_;          // guarded by mutex_: who has arrived in this generation
  Tag tag_;                         // guarded by mutex_: of the first to arrive
  int first_ = 0;                   // guarded by mutex_: who that was
  std::vector<const void*> shown_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace lockstep::collectives
