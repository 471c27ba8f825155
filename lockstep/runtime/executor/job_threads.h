#pragma once
// Threads that all run the same job once, over and over: one a rank, and those with which a rank looks
// through its logits. No queue: run() returns when all have. Private to the executor.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep::runtime {

class JobThreads {
 public:
  using Job = std::function<void(int thread)>;
  using OnError = std::function<void(int thread, const std::string& what)>;

  // Fatal where so many threads cannot be started; `flag` is what to lower then.
  JobThreads(int num_threads, std::string_view flag);
  ~JobThreads();
  JobThreads(const JobThreads&) = delete;
  JobThreads& operator=(const JobThreads&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }
  // Lets every thread run the job, and `meanwhile` the caller's own, whose exceptions come through once the
  // threads are done. on_error is called at once, on the thread that threw, so that the others do not wait
  // for it.
  void run(const Job& job, const OnError& on_error, const std::function<void()>& meanwhile = {});

 private:
  void stop();
  void loop(int thread);
  static void run_one(const Job& job, const OnError& on_error, int thread);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const Job* job_ = nullptr;  // this and what follows: guarded by mutex_
  const OnError* on_error_ = nullptr;
  uint64_t generation_ = 0;
  int num_running_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::runtime
