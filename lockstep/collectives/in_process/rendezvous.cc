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
  uint64_t generation;
  {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    if (num_here_ == 0) {
      tag_ = tag;
      first_ = members_[index];
    }
    check_tag(index, tag);
    shown_[index] = what;
    generation = generation_.load(std::memory_order_relaxed);
    if (arrive(index) == Arrival::kLast) return shown_;
  }
  if (!spun_until_passed(generation)) wait_entering(generation, tag);
  return shown_;
}

void Rendezvous::leave(int index) {
  uint64_t generation;
  {
    const std::lock_guard lock(mutex_);
    generation = generation_.load(std::memory_order_relaxed);
    if (arrive(index) == Arrival::kLast) return;
  }
  if (spun_until_passed(generation)) return;
  std::unique_lock lock(mutex_);
  all_here_.wait(lock, [&] { return passed(generation); });
}

Rendezvous::Arrival Rendezvous::arrive(int index) {
  here_[index] = 1;
  if (++num_here_ < members_.size()) return Arrival::kMustWait;
  num_here_ = 0;
  std::fill(here_.begin(), here_.end(), char{0});
  generation_.fetch_add(1, std::memory_order_release);
  all_here_.notify_all();
  return Arrival::kLast;
}

void Rendezvous::check_tag(int index, const Tag& tag) {
  if (tag_.engine_step == tag.engine_step && tag_.plan_step == tag.plan_step) return;
  give_up(fmt::format(
      "ranks of group [{}] disagree on what to do: rank {} is at step {} of engine step {} ({}), rank {} "
      "at step {} of engine step {} ({})",
      fmt::join(members_, ","), first_, tag_.plan_step, tag_.engine_step, tag_.what, members_[index],
      tag.plan_step, tag.engine_step, tag.what));
}

bool Rendezvous::spun_until_passed(uint64_t generation) {
  if (waiting_ == Waiting::kSleep) return passed(generation);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (passed(generation)) return true;
    relax();
  }
  return false;
}

void Rendezvous::wait_entering(uint64_t generation, const Tag& tag) {
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + deadline_;
  const bool in_time =
      all_here_.wait_until(lock, until, [&] { return passed(generation) || failure_.happened.load(); });
  if (passed(generation)) return;
  give_up(in_time ? "" : expired(tag));  // in time and not passed: the world failed and has its reason
}

std::string Rendezvous::expired(const Tag& tag) const {
  std::vector<int> missing;
  for (size_t at = 0; at < members_.size(); ++at)
    if (!here_[at]) missing.push_back(members_[at]);
  return fmt::format(
      "no progress for {} ms at step {} of engine step {} ({}) in group [{}]: waiting for rank {}; "
      "--collective-timeout sets how long ranks wait",
      deadline_.count(), tag.plan_step, tag.engine_step, tag.what, fmt::join(members_, ","),
      fmt::join(missing, ", "));
}

void Rendezvous::give_up(std::string reason) {
  const std::lock_guard lock(failure_.mutex);
  if (!failure_.happened.load()) {
    failure_.reason = std::move(reason);
    failure_.happened.store(true);
  }
  throw Fatal(failure_.reason);
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
