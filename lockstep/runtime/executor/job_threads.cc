#include "lockstep/runtime/executor/job_threads.h"

#include <system_error>

#include "lockstep/base/check.h"

namespace lockstep::runtime {

JobThreads::JobThreads(int num_threads, std::string_view flag) {
  try {
    for (int thread = 0; thread < num_threads; ++thread)
      threads_.emplace_back([this, thread] { loop(thread); });
  } catch (const std::system_error& failure) {
    stop();
    throw Fatal(fmt::format("only {} of {} threads could be started ({}): lower {} or raise the limit",
                            threads_.size(), num_threads, failure.what(), flag));
  }
}

JobThreads::~JobThreads() { stop(); }

void JobThreads::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

void JobThreads::run(const Job& job, const OnError& on_error, const std::function<void()>& meanwhile) {
  {
    const std::lock_guard lock(mutex_);
    job_ = &job;
    on_error_ = &on_error;
    num_running_ = size();
    ++generation_;
  }
  wake_.notify_all();
  struct Done {
    JobThreads& of;
    ~Done() {
      std::unique_lock lock(of.mutex_);
      of.done_.wait(lock, [this] { return of.num_running_ == 0; });
    }
  } const done{*this};
  if (meanwhile) meanwhile();
}

void JobThreads::loop(int thread) {
  uint64_t seen = 0;
  for (;;) {
    const Job* job = nullptr;
    const OnError* on_error = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      job = job_;
      on_error = on_error_;
    }
    run_one(*job, *on_error, thread);
    const std::lock_guard lock(mutex_);
    if (--num_running_ == 0) done_.notify_one();
  }
}

// The engine's threads are where Fatal is caught.
void JobThreads::run_one(const Job& job, const OnError& on_error, int thread) {
  try {
    job(thread);
  } catch (const std::exception& failure) {
    on_error(thread, failure.what());
  }
}

}  // namespace lockstep::runtime
