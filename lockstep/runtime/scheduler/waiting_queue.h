#pragma once
// Who of the sequences that wait for one replica starts next. Those that were preempted come first; then the
// highest priority; among equal ones tenants take turns by the tokens that they have had; then the order of
// arrival. So that nobody waits for ever, the oldest can be overtaken only so often in a row. No clock. For
// the scheduler.
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "lockstep/runtime/scheduler/sequence.h"

namespace lockstep::runtime {

class WaitingQueue {
 public:
  static constexpr int32_t kMostOvertakings = 32;

  // A new sequence, or one from another replica.
  void push(Sequence& sequence);
  // One that had started here.
  void push_preempted(Sequence& sequence);

  bool empty() const { return by_age_.empty(); }
  size_t size() const { return by_age_.size(); }
  Sequence* first() const;  // null when nobody waits
  // The first one starts.
  void take(Sequence& sequence);
  // One that does not start here.
  void remove(Sequence& sequence);
  // A sequence has started elsewhere, which may be one too many of younger ones.
  void note_start(RequestId id);
  // The first was preempted, or is the oldest and cannot be overtaken any more.
  bool is_first_due() const;

  const std::map<RequestId, Sequence*>& by_age() const { return by_age_; }
  size_t num_accounts() const { return accounts_.size(); }

 private:
  // In this order. `turn` is start-time fair queueing's tag (Goyal, Vin, Cheng: Start-time fair queueing,
  // 1996): what the tenant has had when the sequence's turn comes, in tokens.
  struct Place {
    int32_t after_preempted = 1;
    int64_t below_priority = 0;
    int64_t turn = 0;
    RequestId id = 0;
    auto operator<=>(const Place&) const = default;
  };
  void forget_idle_tenants();
  void enter(Sequence& sequence, const Place& place);
  void leave(Sequence& sequence);

  std::map<RequestId, Sequence*> by_age_;
  std::map<Place, Sequence*> in_order_;
  std::unordered_map<RequestId, Place> places_;
  std::unordered_map<std::string, std::shared_ptr<TenantAccount>> accounts_;
  int64_t now_ = 0;              // the turn of the last one that started
  int32_t num_overtakings_ = 0;  // of the oldest
};

}  // namespace lockstep::runtime
