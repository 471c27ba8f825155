#include "lockstep/runtime/scheduler/scheduler.h"

#include <algorithm>

namespace lockstep::runtime {

Scheduler::Replica::Replica(const SchedulerLimits& limits)
    : pool(limits.pages_per_replica), slots(limits.shape.capacity.max_requests) {}

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits) {
  const Status status = check_limits(limits);
  LOCKSTEP_CHECK(status.ok(), "{}", status.error().message);
  for (int32_t i = 0; i < limits.shape.num_replicas; ++i) replicas_.emplace_back(limits);
}

void Scheduler::add(NewSequence added) {
  LOCKSTEP_CHECK_LT(last_id_, added.id);
  LOCKSTEP_CHECK_LE(size_t{1}, added.prompt.size());
  LOCKSTEP_CHECK_LE(static_cast<int64_t>(added.prompt.size()), int64_t{limits_.max_sequence_tokens()});
  last_id_ = added.id;
  auto sequence = std::make_unique<Sequence>();
  sequence->id = added.id;
  sequence->is_pinned = added.replica.has_value();
  sequence->replica = added.replica.value_or(least_loaded());
  LOCKSTEP_CHECK_GE(sequence->replica, 0);
  LOCKSTEP_CHECK_LT(sequence->replica, limits_.shape.num_replicas);
  sequence->tokens = std::move(added.prompt);
  sequence->num_prompt = sequence->num_tokens();
  sequence->num_to_score = added.prompt_logits == WantedLogits::kAll ? sequence->num_prompt : 0;
  home(*sequence).num_tokens += sequence->num_tokens();
  home(*sequence).waiting.emplace(sequence->id, sequence.get());
  sequences_.emplace(sequence->id, std::move(sequence));
}

int32_t Scheduler::least_loaded() const {
  const auto least =
      std::min_element(replicas_.begin(), replicas_.end(),
                       [](const Replica& a, const Replica& b) { return a.num_tokens < b.num_tokens; });
  return static_cast<int32_t>(least - replicas_.begin());
}

std::optional<StepInput> Scheduler::next() {
  LOCKSTEP_CHECK(phase_ == Phase::kBetweenSteps, "step {} has not been committed", num_steps_);
  if (empty()) return std::nullopt;
  const planning::Capacity& capacity = limits_.shape.capacity;
  for (Replica& replica : replicas_) {
    replica.budget = {capacity.max_rows, limits_.chunked_prefill_size, capacity.max_logit_rows};
    plan_decodes(replica);
    plan_prompts(replica);
  }
  admit_waiting();
  phase_ = Phase::kInStep;
  return build();
}

// A decode row for each sequence that generates. Older ones take pages from younger ones, never the other way
// round, so the oldest always advances.
void Scheduler::plan_decodes(Replica& replica) {
  for (auto it = replica.running.begin(); it != replica.running.end();) {
    Sequence& sequence = *it->second;
    while (sequence.decodes() && sequence.is_running && sequence.num_planned == 0) {
      if (replica.pool.grow(sequence.pages, num_pages_for(sequence.num_tokens(), limits_.page_size),
                            sequence.id))
        plan(replica, sequence, 1);
      else
        preempt(replica, *replica.running.rbegin()->second);  // it may be the sequence itself
    }
    it = replica.running.upper_bound(sequence.id);
  }
}

// What is left of the budget goes to prompts that have begun. One that is short of pages takes a shorter
// chunk; one that gets none at all takes them from a younger sequence, or waits when there is no younger one.
void Scheduler::plan_prompts(Replica& replica) {
  for (auto it = replica.running.begin(); it != replica.running.end();) {
    Sequence& sequence = *it->second;
    if (!sequence.decodes()) {
      const int32_t in_budget = prompt_rows(replica, sequence);
      const auto in_cache = [&] {
        const int64_t pages = static_cast<int64_t>(sequence.pages.size()) + replica.pool.num_free();
        return static_cast<int32_t>(
            std::min<int64_t>(pages * limits_.page_size - sequence.num_cached, in_budget));
      };
      while (in_budget > 0 && in_cache() <= 0 && replica.running.rbegin()->first != sequence.id)
        preempt(replica, *replica.running.rbegin()->second);
      int32_t num_rows = in_cache();
      // The shorter chunk may end elsewhere than the one that the budget was asked for.
      if (num_rows > 0) plan(replica, sequence, num_rows);
    }
    it = replica.running.upper_bound(sequence.id);
  }
}

// Prompt rows that the budget allows the sequence in this step, pages left aside.
int32_t Scheduler::prompt_rows(const Replica& replica, const Sequence& sequence) const {
  const Budget& budget = replica.budget;
  int32_t rows = std::min({sequence.num_pending(), budget.prompt_rows, budget.rows});
  if (sequence.num_scored < sequence.num_to_score) {
    if (sequence.num_cached < sequence.num_scored)
      return std::min(rows, sequence.num_scored - sequence.num_cached);
    return std::min({rows, sequence.num_to_score - sequence.num_cached, budget.logit_rows});
  }
  if (rows == sequence.num_pending() && budget.logit_rows == 0) --rows;  // the last row would want logits
  return rows;
}

void Scheduler::plan(Replica& replica, Sequence& sequence, int32_t num_rows) {
  Budget& budget = replica.budget;
  const bool has_pages = replica.pool.grow(
      sequence.pages, num_pages_for(sequence.num_cached + num_rows, limits_.page_size), sequence.id);
  LOCKSTEP_CHECK(has_pages, "{} rows of request {} were planned with {} pages free", num_rows, sequence.id,
                 replica.pool.num_free());
  budget.rows -= num_rows;
  if (!sequence.decodes()) budget.prompt_rows -= num_rows;
  budget.logit_rows -= num_logit_rows(sequence.wanted(num_rows), num_rows);
  sequence.num_planned = num_rows;
  LOCKSTEP_CHECK_GE(std::min({budget.rows, budget.prompt_rows, budget.logit_rows}), 0);
}

// Oldest first over all replicas; a replica whose oldest cannot start is left for this step, so nobody is
// overtaken there.
void Scheduler::admit_waiting() {
  std::vector<uint8_t> blocked(replicas_.size(), 0);
  while (num_running_ < limits_.max_running()) {
    Sequence* oldest = nullptr;
    for (const Replica& replica : replicas_) {
      if (replica.waiting.empty() || blocked[static_cast<size_t>(&replica - replicas_.data())]) continue;
      Sequence* candidate = replica.waiting.begin()->second;
      if (oldest == nullptr || candidate->id < oldest->id) oldest = candidate;
    }
    if (oldest == nullptr) return;
    if (can_start(home(*oldest), *oldest))
      start(*oldest);
    else if (!start_elsewhere(*oldest, blocked))
      blocked[static_cast<size_t>(oldest->replica)] = 1;
  }
}

bool Scheduler::can_start(const Replica& replica, const Sequence& sequence) const {
  return replica.slots.num_free() > 0 && prompt_rows(replica, sequence) > 0 &&
         has_pages_for(replica, sequence);
}

// Pages for all tokens of a sequence and for the one after; the last may not exist.
int32_t Scheduler::num_pages_wanted(const Sequence& sequence) const {
  return std::min(num_pages_for(int64_t{sequence.num_tokens()} + 1, limits_.page_size),
                  limits_.pages_per_replica);
}

// A sequence starts only when the free pages, less what the running ones still need for their known tokens,
// hold all of its own: one that was preempted is not started just to be preempted again.
bool Scheduler::has_pages_for(const Replica& replica, const Sequence& sequence) const {
  int64_t spare = replica.pool.num_free();
  for (const auto& [id, other] : replica.running)
    spare -= std::max<int64_t>(0, num_pages_wanted(*other) - static_cast<int64_t>(other->pages.size()));
  return num_pages_wanted(sequence) <= spare;
}

void Scheduler::start(Sequence& sequence) {
  Replica& replica = home(sequence);
  sequence.slot = replica.slots.take(sequence.id);
  sequence.is_running = true;
  replica.waiting.erase(sequence.id);
  replica.running.emplace(sequence.id, &sequence);
  ++num_running_;
  plan(replica, sequence, prompt_rows(replica, sequence));
}

// A sequence that waits holds nothing, so it may move to a replica that can run it now, has nobody waiting
// and is not the fuller of the two for it. Otherwise replicas that were filled alike would idle while
// another's queue is long.
bool Scheduler::start_elsewhere(Sequence& sequence, const std::vector<uint8_t>& blocked) {
  if (sequence.is_pinned) return false;
  Replica* best = nullptr;
  for (Replica& replica : replicas_) {
    if (&replica == &home(sequence) || !replica.waiting.empty() ||
        blocked[static_cast<size_t>(&replica - replicas_.data())])
      continue;
    if (replica.num_tokens + sequence.num_tokens() > home(sequence).num_tokens ||
        !can_start(replica, sequence))
      continue;
    if (best == nullptr || replica.num_tokens < best->num_tokens) best = &replica;
  }
  if (best == nullptr) return false;
  Replica& from = home(sequence);
  from.waiting.erase(sequence.id);
  from.num_tokens -= sequence.num_tokens();
  best->num_tokens += sequence.num_tokens();
  best->waiting.emplace(sequence.id, &sequence);
  sequence.replica = static_cast<int32_t>(best - replicas_.data());
  start(sequence);
  return true;
}

void Scheduler::stop(Sequence& sequence) {
  Replica& replica = home(sequence);
  replica.slots.release(sequence.slot, sequence.id);
  sequence.slot = -1;
  sequence.is_running = false;
  sequence.num_cached = 0;
  sequence.num_planned = 0;
  replica.pool.release(sequence.pages, sequence.id);
  replica.running.erase(sequence.id);
  --num_running_;
}

void Scheduler::preempt(Replica& replica, Sequence& sequence) {
  LOCKSTEP_CHECK(replica.running.size() > 1,
                 "request {} of {} tokens is alone and lacks pages; its replica has {}", sequence.id,
                 sequence.num_tokens(), replica.pool.num_pages());
  if (sequence.num_planned > 0) {  // a decode row: prompts are planned after all of these, and oldest first
    LOCKSTEP_CHECK(sequence.decodes(), "request {} has {} prompt rows planned", sequence.id,
                   sequence.num_planned);
    ++replica.budget.rows;
    ++replica.budget.logit_rows;
  }
  stop(sequence);
  replica.waiting.emplace(sequence.id, &sequence);
  ++num_preemptions_;
}

void Scheduler::commit() {
  LOCKSTEP_CHECK(phase_ == Phase::kInStep, "no step is running after step {}", num_steps_);
  phase_ = Phase::kBetweenSteps;
  for (Replica& replica : replicas_) {
    for (const auto& [id, sequence] : replica.running) {
      const bool is_scored =
          sequence->num_planned > 0 && sequence->wanted(sequence->num_planned) == WantedLogits::kAll;
      sequence->num_cached += sequence->num_planned;
      sequence->num_planned = 0;
      if (is_scored) sequence->num_scored = sequence->num_cached;
    }
  }
}

void Scheduler::abandon() {
  phase_ = Phase::kBetweenSteps;
  for (Replica& replica : replicas_)
    for (const auto& [id, sequence] : replica.running) sequence->num_planned = 0;
}

void Scheduler::append(RequestId id, int32_t token) {
  Sequence& sequence = find(id);
  LOCKSTEP_CHECK(sequence.is_running, "request {} does not run", id);
  LOCKSTEP_CHECK_EQ(sequence.num_pending(), 0);
  LOCKSTEP_CHECK_LT(sequence.num_tokens(), limits_.max_sequence_tokens());
  sequence.tokens.push_back(token);
  ++home(sequence).num_tokens;
}

void Scheduler::remove(RequestId id) {
  LOCKSTEP_CHECK(phase_ == Phase::kBetweenSteps, "request {} may be in step {}", id, num_steps_);
  Sequence& sequence = find(id);
  if (sequence.is_running)
    stop(sequence);
  else
    home(sequence).waiting.erase(id);
  home(sequence).num_tokens -= sequence.num_tokens();
  sequences_.erase(id);
  if (empty()) check_idle();
}

Sequence& Scheduler::find(RequestId id) {
  const auto found = sequences_.find(id);
  LOCKSTEP_CHECK(found != sequences_.end(), "request {} is not known; the last was {}", id, last_id_);
  return *found->second;
}

const Sequence& Scheduler::sequence(RequestId id) const {
  const auto found = sequences_.find(id);
  LOCKSTEP_CHECK(found != sequences_.end(), "request {} is not known; the last was {}", id, last_id_);
  return *found->second;
}

ReplicaStats Scheduler::replica_stats(int replica) const {
  const Replica& r = replicas_[static_cast<size_t>(replica)];
  return {.running = static_cast<int>(r.running.size()),
          .queued = static_cast<int>(r.waiting.size()),
          .pages_used = r.pool.num_used(),
          .pages_total = r.pool.num_pages(),
          .slots_used = r.slots.num_used(),
          .slots_total = r.slots.num_slots()};
}

}  // namespace lockstep::runtime
