#pragma once
// The threads that compute one rank's ops: the rank's own and some beside it, which live as long as the
// rank's kernels. They share out items that do not depend on each other; who takes which is left to chance,
// so an item's result must not depend on it. Passed as an argument, one object a rank.
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace lockstep::kernels::cpu {

class ComputeThreads {
 public:
  // How threads wait for work and for each other: kSpin looks again and again for some time before it sleeps,
  // which is right where every thread has a core of its own.
  enum class Wait : uint8_t { kSpin, kSleep };

  // Fatal where so many threads cannot be started. num_threads counts the caller's own.
  ComputeThreads(int num_threads, Wait wait);
  ~ComputeThreads();
  ComputeThreads(const ComputeThreads&) = delete;
  ComputeThreads& operator=(const ComputeThreads&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // body(item, thread) once for every item in [0, num_items); returns when all are done. Thread 0 is the
  // caller's. What a body throws first comes out here; some items are then left out. Not from inside a body.
  template <class Body>
  void for_each(int64_t num_items, Body&& body) {
    if (size() == 1 || num_items <= 1) {
      for (int64_t item = 0; item < num_items; ++item) body(item, 0);
      return;
    }
    using Bare = std::remove_reference_t<Body>;
    run({.call = [](void* of, int64_t item, int thread) { (*static_cast<Bare*>(of))(item, thread); },
         .body = const_cast<void*>(static_cast<const void*>(&body)),
         .num_items = num_items});
  }

 private:
  struct Job {
    void (*call)(void* body, int64_t item, int thread) = nullptr;
    void* body = nullptr;
    int64_t num_items = 0;
  };
  void run(const Job& job);
  void take_items(int thread);
  void loop(int thread);
  void stop();
  // False when the job is over for those who have not begun: nobody waits for a thread that has no core.
  bool join();
  // Until `value` is no longer `old`.
  void wait_while(const std::atomic<uint32_t>& value, uint32_t old) const;

  static constexpr uint32_t kClosed = uint32_t{1} << 31;
  const int spins_;
  Job job_;  // written while the gate is closed and nobody is in
  alignas(64) std::atomic<int64_t> next_ = 0;
  alignas(64) std::atomic<uint32_t> generation_ = 0;
  alignas(64) std::atomic<uint32_t> gate_ =
      kClosed;  // how many threads are in the job, and whether more may join
  std::atomic<bool> stopping_ = false;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // the first; guarded by failure_mutex_ while a job runs
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::kernels::cpu
