#include "lockstep/collectives/in_process/rendezvous.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::collectives {
namespace {

constexpr int kSpins = 2000;  // about ten microseconds

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Rendezvous::Rendezvous(Group group, Waiting waiting, std::chrono::milliseconds deadline, Failure& failure)
    : members_(std::move(group.members)),
      number_(group.number),
      abroad_(std::move(group.abroad)),
      waiting_(waiting),
      deadline_(deadline),
      failure_(failure),
      here_(members_.size(), 0),
      shown_(members_.size(), nullptr) {
  for (const Abroad& abroad : abroad_) num_abroad_ += abroad.num;
  if (num_abroad_ > 0) far_.resize(members_.size());
}

const std::vector<const void*>& Rendezvous::meet(int index, const void* what, const Tag& tag) {
  uint64_t generation;
  {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    if (std::string words = disagreement(index, tag); !words.empty()) give_up(std::move(words));
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
  const bool is_entering = phase_ == Phase::kEntering;
  if (++num_here_ < members_.size() - (is_entering ? 0 : num_abroad_)) return Arrival::kMustWait;
  num_here_ = 0;
  std::fill(here_.begin(), here_.end(), char{0});
  phase_ = is_entering ? Phase::kLeaving : Phase::kEntering;
  generation_.fetch_add(1, std::memory_order_release);
  if (!is_entering && num_abroad_ > 0) take_all_from_afar();
  all_here_.notify_all();
  return Arrival::kLast;
}

std::string Rendezvous::disagreement(int index, const Tag& tag) {
  if (num_here_ == 0) {
    tag_ = tag;
    first_ = members_[index];
  }
  if (tag_.engine_step == tag.engine_step && tag_.plan_step == tag.plan_step) return "";
  return fmt::format(
      "ranks of group [{}] disagree on what to do: rank {} is at step {} of engine step {} ({}), rank {} "
      "at step {} of engine step {} ({})",
      fmt::join(members_, ","), first_, tag_.plan_step, tag_.engine_step, tag_.what, members_[index],
      tag.plan_step, tag.engine_step, tag.what);
}

void Rendezvous::show_from_afar(int rank, ShownFromAfar shown) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  const auto at = std::find(members_.begin(), members_.end(), rank);
  LOCKSTEP_CHECK(at != members_.end(), "rank {} is not of group [{}]", rank, fmt::join(members_, ","));
  const auto index = static_cast<size_t>(at - members_.begin());
  LOCKSTEP_CHECK(far_.at(index).next.shown == nullptr, "rank {} is two meetings ahead in group [{}]", rank,
                 fmt::join(members_, ","));
  far_[index].next = std::move(shown);
  if (phase_ == Phase::kEntering && here_[index] == 0) take_from_afar(index);
  throw_if_failed();
}

// No exception: members that leave come through here.
void Rendezvous::take_from_afar(size_t index) {
  FromAfar& far = far_[index];
  far.now = std::move(far.next);
  far.next = {};
  const Tag tag{far.now.engine_step, far.now.plan_step, far.now.what};
  if (std::string words = disagreement(static_cast<int>(index), tag); !words.empty())
    return record_failure(std::move(words));
  shown_[index] = far.now.shown.get();
  arrive(static_cast<int>(index));
}

void Rendezvous::take_all_from_afar() {
  for (size_t index = 0; index < far_.size(); ++index) {
    far_[index].now = {};
    if (far_[index].next.shown != nullptr) take_from_afar(index);
  }
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

std::string Rendezvous::place_of(const Tag& tag) const {
  std::vector<int> missing;
  for (size_t at = 0; at < members_.size(); ++at)
    if (!here_[at]) missing.push_back(members_[at]);
  return fmt::format("step {} of engine step {} ({}) in group [{}]: waiting for rank {}", tag.plan_step,
                     tag.engine_step, tag.what, fmt::join(members_, ","), fmt::join(missing, ", "));
}

std::string Rendezvous::expired(const Tag& tag) const {
  return fmt::format("no progress for {} ms at {}; --collective-timeout sets how long ranks wait",
                     deadline_.count(), place_of(tag));
}

std::optional<Rendezvous::Pending> Rendezvous::pending() {
  const std::lock_guard lock(mutex_);
  if (num_here_ == 0 || phase_ != Phase::kEntering) return std::nullopt;
  Pending pending{.waiting = {}, .text = place_of(tag_)};
  for (size_t at = 0; at < members_.size(); ++at)
    if (here_[at]) pending.waiting.push_back(members_[at]);
  return pending;
}

void Rendezvous::record_failure(std::string reason) {
  const std::lock_guard lock(failure_.mutex);
  if (!failure_.happened.load()) {
    failure_.reason = std::move(reason);
    failure_.happened.store(true);
  }
}

void Rendezvous::give_up(std::string reason) {
  record_failure(std::move(reason));
  throw_if_failed();
  throw Fatal(fmt::format("group [{}] gave up", fmt::join(members_, ",")));
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
