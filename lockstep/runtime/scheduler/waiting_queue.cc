#include "lockstep/runtime/scheduler/waiting_queue.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::runtime {

void WaitingQueue::push(Sequence& sequence) {
  if (accounts_.size() > 2 * size() + 1024) forget_idle_tenants();
  std::shared_ptr<TenantAccount>& account = accounts_[sequence.tenant];
  if (account == nullptr) account = std::make_shared<TenantAccount>();
  const int64_t turn = std::max(now_, account->tokens_had);
  account->tokens_had = turn + sequence.num_tokens();
  sequence.account = account;
  enter(sequence, {.below_priority = -int64_t{sequence.priority}, .turn = turn, .id = sequence.id});
}

// Of tenants without a request nothing is remembered for long: names cost their sender nothing.
void WaitingQueue::forget_idle_tenants() {
  std::erase_if(accounts_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

void WaitingQueue::push_preempted(Sequence& sequence) {
  enter(sequence, {.after_preempted = 0, .id = sequence.id});
}

Sequence* WaitingQueue::first() const {
  if (empty()) return nullptr;
  return num_overtakings_ >= kMostOvertakings ? by_age_.begin()->second : in_order_.begin()->second;
}

void WaitingQueue::take(Sequence& sequence) {
  const Place& place = places_.at(sequence.id);
  if (place.after_preempted == 1) now_ = std::max(now_, place.turn);
  note_start(sequence.id);
  leave(sequence);
}

void WaitingQueue::note_start(RequestId id) {
  if (!empty() && by_age_.begin()->first < id) ++num_overtakings_;
}

bool WaitingQueue::is_first_due() const {
  return !empty() && (num_overtakings_ >= kMostOvertakings || in_order_.begin()->first.after_preempted == 0);
}

void WaitingQueue::remove(Sequence& sequence) { leave(sequence); }

void WaitingQueue::enter(Sequence& sequence, const Place& place) {
  if (empty() || sequence.id < by_age_.begin()->first) num_overtakings_ = 0;
  const bool is_new = by_age_.emplace(sequence.id, &sequence).second;
  LOCKSTEP_CHECK(is_new, "request {} waits already, with {} others", sequence.id, size() - 1);
  in_order_.emplace(place, &sequence);
  places_.emplace(sequence.id, place);
}

// When nobody waits, nobody has had less than their share: all begin anew.
void WaitingQueue::leave(Sequence& sequence) {
  const auto found = by_age_.find(sequence.id);
  LOCKSTEP_CHECK(found != by_age_.end(), "request {} is not among the {} that wait", sequence.id, size());
  if (found == by_age_.begin()) num_overtakings_ = 0;
  by_age_.erase(found);
  in_order_.erase(places_.at(sequence.id));
  places_.erase(sequence.id);
  if (empty()) accounts_.clear();
}

}  // namespace lockstep::runtime
