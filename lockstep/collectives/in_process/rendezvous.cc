#include "lockstep/collectives/in_process/rendezvous.h"

#include <fmt/ranges.h>

namespace lockstep::collectives {
namespace {

constexpr int kSpins = 2000;  // about ten microseconds

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Rendezvous::Rendezvous(std::vector<int> members, Waiting waiting, std::chrono::milliseconds deadline,
                       Failure& failure)
    : members_(std::move(members)),
      waiting_(waiting),
      deadline_(deadline),
      failure_(failure),
      here_(members_.size(), 0),
      shown_(members_.size(), nullptr) {}

const std::vector<const void*>& Rendezvous::meet(int index, const void* what, const Tag& tag) {
  shown_[index] = what;  // published by the lock in wait_for_all
  wait_for_all(index, tag, "entering");
  return shown_;
}

void Rendezvous::leave(int index, const Tag& tag) { wait_for_all(index, tag, "leaving"); }

void Rendezvous::wait_for_all(int index, const Tag& tag, const char* phase) {
  throw_if_failed();
  std::unique_lock lock(mutex_);
  if (num_here_ == 0) {
    tag_ = tag;
    first_ = members_[index];
  } else if (tag_.engine_step != tag.engine_step || tag_.plan_step != tag.plan_step) {
    const std::string reason = fmt::format(
        "ranks of group [{}] disagree on what to do: rank {} is at step {} of engine step {} ({}), rank {} "
        "at step {} of "
        "engine step {} ({})",
        fmt::join(members_, ","), first_, tag_.plan_step, tag_.engine_step, tag_.what, members_[index],
        tag.plan_step, tag.engine_step, tag.what);
    lock.unlock();
    fail(reason);
  }
  here_[index] = 1;
  const uint64_t generation = generation_.load(std::memory_order_relaxed);
  if (++num_here_ == members_.size()) {
    num_here_ = 0;
    std::fill(here_.begin(), here_.end(), char{0});
    generation_.store(generation + 1, std::memory_order_release);
    lock.unlock();
    all_here_.notify_all();
    return;
  }
  if (waiting_ == Waiting::kSpinThenSleep) {
    lock.unlock();
    for (int spin = 0; spin < kSpins; ++spin) {
      if (passed(generation)) return;
      relax();
    }
    lock.lock();
  }
  const auto until = std::chrono::steady_clock::now() + deadline_;
  const bool in_time =
      all_here_.wait_until(lock, until, [&] { return passed(generation) || failure_.happened.load(); });
  if (passed(generation)) return;
  if (!in_time) {
    const auto missing_lock = std::move(lock);  // expire() reads here_ under it
    expire(tag, phase);
  }
  lock.unlock();
  throw_if_failed();
}

void Rendezvous::expire(const Tag& tag, const char* phase) {
  std::vector<int> missing;
  for (size_t at = 0; at < members_.size(); ++at)
    if (!here_[at]) missing.push_back(members_[at]);
  const std::string reason = fmt::format(
      "no progress for {} ms {} step {} of engine step {} ({}) in group [{}]: waiting for rank {}; "
      "--collective-timeout sets how long ranks wait",
      deadline_.count(), phase, tag.plan_step, tag.engine_step, tag.what, fmt::join(members_, ","),
      fmt::join(missing, ", "));
  fail(reason);
}

void Rendezvous::fail(std::string reason) {
  {
    const std::lock_guard lock(failure_.mutex);
    if (!failure_.happened.load()) {
      failure_.reason = reason;
      failure_.happened.store(true);
    }
  }
  throw Fatal(reason);
}

void Rendezvous::throw_if_failed() {
  if (!failure_.happened.load()) return;
  const std::lock_guard lock(failure_.mutex);
  throw Fatal(failure_.reason);
}

void Rendezvous::wake() {
  const std::lock_guard lock(mutex_);  // no waiter is between its check and its sleep
  all_here_.notify_all();
}

}  // namespace lockstep::collectives
