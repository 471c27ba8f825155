#include "lockstep/kernels/cpu/compute_threads.h"

#include <system_error>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int kSpins = 4096;  // some 50 µs: longer than what lies between two ops of a step

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

ComputeThreads::ComputeThreads(int num_threads, Wait wait) : spins_(wait == Wait::kSpin ? kSpins : 0) {
  LOCKSTEP_CHECK(num_threads >= 1, "{} threads", num_threads);
  try {
    for (int thread = 1; thread < num_threads; ++thread)
      threads_.emplace_back([this, thread] { loop(thread); });
  } catch (const std::system_error& failure) {
    stop();
    throw Fatal(fmt::format("only {} of {} threads could be started ({}): lower --threads or raise the limit",
                            threads_.size(), num_threads - 1, failure.what()));
  }
}

ComputeThreads::~ComputeThreads() { stop(); }

void ComputeThreads::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void ComputeThreads::wait_while(const std::atomic<uint32_t>& value, uint32_t old) const {
  for (int spin = 0; spin < spins_; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void ComputeThreads::run(const Job& job) {
  job_ = job;
  next_.store(0, std::memory_order_relaxed);
  gate_.store(0, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_items(0);
  uint32_t gate = gate_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  for (; gate != kClosed; gate = gate_.load(std::memory_order_acquire)) wait_while(gate_, gate);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

bool ComputeThreads::join() {
  uint32_t gate = gate_.load(std::memory_order_acquire);
  while ((gate & kClosed) == 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ComputeThreads::take_items(int thread) {
  try {
    for (;;) {
      const int64_t item = next_.fetch_add(1, std::memory_order_relaxed);
      if (item >= job_.num_items) return;
      job_.call(job_.body, item, thread);
    }
  } catch (...) {
    next_.store(job_.num_items, std::memory_order_relaxed);
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ComputeThreads::loop(int thread) {
  for (uint32_t seen = 0;;) {
    wait_while(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (!join()) continue;
    take_items(thread);
    if (gate_.fetch_sub(1, std::memory_order_acq_rel) == kClosed + 1) gate_.notify_one();
  }
}

}  // namespace lockstep::kernels::cpu
