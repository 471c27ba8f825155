#pragma once
// Who runs next: forms every step from the waiting and running sequences of all attention replicas. Pure: one
// thread, no clock, no randomness; the same calls give the same steps. For the step loop only.
//
// A step carries one decode row for each sequence that generates and prompt rows within the budget, first
// come first served among those that have started (WaitingQueue says who starts). What the replica's cache
// holds of a beginning is taken from there. Pages are taken as a sequence grows; when a replica has none left
// its youngest running sequence is preempted, which gives its pages up and is computed again later, as far as
// the cache has forgotten it.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/runtime/kv_cache/replica_cache.h"
#include "lockstep/runtime/kv_cache/slot_pool.h"
#include "lockstep/runtime/scheduler/limits.h"
#include "lockstep/runtime/scheduler/sequence.h"
#include "lockstep/runtime/scheduler/waiting_queue.h"
#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

// Of the sequences that have started: their prompts' tokens, and those taken from the cache.
struct PrefixCounts {
  uint64_t queried = 0, hit = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);  // limits that check_limits() refuses are a bug

  // Ids are in order of arrival, though one may be added after later ones. The prompt is one that
  // check_request() lets through.
  void add(NewSequence sequence);

  // The next step, or none when there is no sequence. After it comes commit() or abandon() before anything
  // else.
  std::optional<StepInput> next();
  // A step that is over gives its memory to the next one.
  void recycle(StepInput&& used) { spare_ = std::move(used); }
  void commit();   // the step ran: its rows are in the cache
  void abandon();  // it failed: what the cache holds of its sequences is unknown, so they can only be removed

  // The token drawn after the last one of a running sequence, all of which is cached.
  void append(RequestId id, int32_t token);
  // The same of the sequence whose rows these are, which the last step ran: nothing is looked up.
  void append(int32_t replica, const SequenceRows& rows, int32_t token);
  // Whoever walks the rows of a replica has come to the one at `at`: memory of those ahead is asked for.
  void fetch_ahead(int32_t replica, std::span<const SequenceRows> rows, size_t at) const;
  // The token appended last is the next of the drafts that the last step ran: its row is in the cache
  // already.
  void accept_draft(int32_t replica, const SequenceRows& rows);
  // Tokens that may follow a running sequence's; the next step verifies as many as there is room for. Between
  // steps.
  void propose(RequestId id, std::vector<int32_t> drafts);
  // Takes pages that are available for so many tokens of a running sequence, as far as it may grow; how many
  // of them its pages hold then.
  int32_t reserve(RequestId id, int32_t num_tokens);
  // The step in which drafts are made, of rows that stand in the running sequences' pages.
  planning::StepPlan plan_drafts(std::vector<planning::ReplicaCounts> counts);

  // Ended or cancelled, wherever it is: its slot is free again, and its pages are or stay in the tree, for
  // others.
  using Pages = ReplicaCache::Pages;
  void remove(RequestId id, Pages pages = Pages::kKeep);
  // Forgets all cached beginnings that nobody is using.
  void clear_cache();

  bool empty() const { return sequences_.empty(); }
  const Sequence& sequence(RequestId id) const;
  bool knows(RequestId id) const { return sequences_.count(id) != 0; }
  int32_t num_running() const { return num_running_; }
  uint64_t num_preemptions() const { return num_preemptions_; }
  const PrefixCounts& prefix_counts() const { return prefix_counts_; }
  ReplicaStats replica_stats(int replica) const;

  // With no sequence left, every slot is free, and every page is or lies in the tree out of use.
  void check_idle() const;
  // Everything that must hold between steps, for tests: costs a pass over all pages and sequences.
  void check_invariants() const;

 private:
  // What is left of a replica's capacity in the step that is being formed.
  struct Budget {
    int32_t rows = 0, prompt_rows = 0, logit_rows = 0;
  };
  struct Replica {
    explicit Replica(const SchedulerLimits& limits);
    ReplicaCache cache;
    WaitingQueue waiting;
    std::vector<Sequence*> running;  // oldest first
    SlotPool slots;
    std::vector<Sequence*> by_slot;  // [slots] whose it is; null: nobody's
    int64_t num_tokens = 0;          // of all its sequences: its load
    Budget budget;
  };
  enum class Phase : uint8_t { kBetweenSteps, kInStep };

  Replica& home(const Sequence& sequence) { return replicas_[static_cast<size_t>(sequence.replica)]; }
  Sequence& find(RequestId id);
  Sequence& seated(int32_t replica, const SequenceRows& rows);
  void append_to(Sequence& sequence, int32_t token);
  int32_t cheapest_replica(const Sequence& sequence) const;

  void plan_decodes(Replica& replica);
  void plan_prompts(Replica& replica);
  void admit_waiting();
  int32_t prompt_rows(const Replica& replica, const Sequence& sequence, int32_t num_cached) const;
  int32_t chunk(const Replica& replica, const Sequence& sequence, int32_t num_rows) const;
  void plan(Replica& replica, Sequence& sequence, int32_t num_rows);
  int32_t room_for_drafts(Replica& replica, Sequence& sequence);
  bool take_back_drafts(Replica& replica);
  void plan_snapshot(Replica& replica, Sequence& sequence);
  static void end_snapshot(Replica& replica, Sequence& sequence, int32_t page);

  std::optional<PrefixHit> can_start(const Replica& replica, const Sequence& sequence) const;
  PrefixHit find_prefix(const Replica& replica, const Sequence& sequence) const;
  bool makes_snapshots(const Replica& replica) const { return replica.cache.snapshots().size() > 0; }
  bool is_being_computed(const Replica& replica, const Sequence& sequence, const PrefixHit& hit) const;
  bool has_pages_for(const Replica& replica, const Sequence& sequence, const PrefixHit& hit) const;
  void start(Sequence& sequence, const PrefixHit& hit);
  Sequence* first_waiting(const std::vector<uint8_t>& blocked) const;
  bool start_elsewhere(Sequence& sequence, const std::vector<uint8_t>& blocked);
  void stop(Sequence& sequence, Pages pages = Pages::kKeep);  // gives up pages and slot
  void preempt(Replica& replica, Sequence& sequence);
  int32_t num_pages_wanted(const Sequence& sequence) const;

  void check_table(const Replica& replica, const Sequence& sequence, std::vector<int32_t>& users) const;
  StepInput build();
  planning::ReplicaCounts fill(const Replica& replica, std::vector<SequenceRows>& rows) const;

  StepInput spare_;  // for its memory
  SchedulerLimits limits_;
  std::vector<Replica> replicas_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  Phase phase_ = Phase::kBetweenSteps;
  RequestId last_id_ = 0;
  uint64_t num_steps_ = 0;
  uint64_t num_preemptions_ = 0;
  PrefixCounts prefix_counts_;
  int32_t num_running_ = 0;
};

}  // namespace lockstep::runtime
