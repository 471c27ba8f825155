#include "lockstep/runtime/scheduler/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace lockstep::runtime {

Scheduler::Replica::Replica(const SchedulerLimits& limits)
    : cache({.num_pages = limits.pages_per_replica,
             .page_size = limits.page_size,
             .prefix_cache = limits.prefix_cache,
             .sequence_state = limits.sequence_state,
             .first_snapshot = limits.shape.capacity.max_requests,
             .num_snapshots = limits.num_snapshots}),
      slots(limits.shape.capacity.max_requests),
      by_slot(static_cast<size_t>(limits.shape.capacity.max_requests), nullptr) {}

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits) {
  const Status status = check_limits(limits);
  LOCKSTEP_CHECK(status.ok(), "{}", status.error().message);
  // Pages without a state are of no use: nobody is to look for them, or to wait for whoever computes them.
  if (limits_.sequence_state == SequenceState::kKept && limits_.num_snapshots == 0)
    limits_.prefix_cache = PrefixCache::kOff;
  for (int32_t i = 0; i < limits.shape.num_replicas; ++i) replicas_.emplace_back(limits_);
}

void Scheduler::add(NewSequence added) {
  LOCKSTEP_CHECK_LT(RequestId{0}, added.id);
  LOCKSTEP_CHECK(!sequences_.contains(added.id), "request {} was added twice; the last was {}", added.id,
                 last_id_);
  LOCKSTEP_CHECK_LE(size_t{1}, added.prompt.size());
  LOCKSTEP_CHECK_LE(static_cast<int64_t>(added.prompt.size()), int64_t{limits_.max_sequence_tokens()});
  last_id_ = std::max(last_id_, added.id);
  auto sequence = std::make_unique<Sequence>();
  sequence->id = added.id;
  sequence->tokens = std::move(added.prompt);
  sequence->num_prompt = sequence->num_tokens();
  sequence->cache_salt = std::move(added.cache_salt);
  sequence->priority = added.priority;
  sequence->tenant = std::move(added.tenant);
  if (limits_.prefix_cache == PrefixCache::kOn)
    extend_page_keys(sequence->cache_salt, sequence->tokens, limits_.page_size, sequence->page_keys);
  sequence->is_pinned = added.replica.has_value();
  sequence->replica = added.replica ? *added.replica : cheapest_replica(*sequence);
  LOCKSTEP_CHECK_GE(sequence->replica, 0);
  LOCKSTEP_CHECK_LT(sequence->replica, limits_.shape.num_replicas);
  sequence->num_to_score = added.prompt_logits == WantedLogits::kAll ? sequence->num_prompt : 0;
  home(*sequence).num_tokens += sequence->num_tokens();
  home(*sequence).waiting.push(*sequence);
  sequences_.emplace(sequence->id, std::move(sequence));
}

// The replica that has the fewest tokens to care for once it has computed what it lacks of this sequence.
int32_t Scheduler::cheapest_replica(const Sequence& sequence) const {
  const auto cost = [&](const Replica& replica) {
    const int64_t from_cache =
        replica.cache.shares() ? int64_t{replica.cache.num_matching(sequence.page_keys)} * limits_.page_size
                               : 0;
    return replica.num_tokens - from_cache;
  };
  size_t best = 0;
  int64_t least = cost(replicas_[0]);
  for (size_t i = 1; i < replicas_.size(); ++i) {
    const int64_t other = cost(replicas_[i]);
    if (other < least) best = i, least = other;
  }
  return static_cast<int32_t>(best);
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
  for (size_t i = 0; i < replica.running.size(); ++i) {  // preemption shortens the list from its end
    fetch_sequence_ahead(replica.running, i);
    Sequence& sequence = *replica.running[i];
    while (sequence.decodes() && sequence.is_running && sequence.num_planned == 0) {
      if (replica.cache.grow(sequence.table, num_pages_for(sequence.num_tokens(), limits_.page_size),
                             sequence.id))
        plan(replica, sequence, 1 + room_for_drafts(replica, sequence));
      else if (!take_back_drafts(replica))
        preempt(replica, *replica.running.back());  // it may be the sequence itself
    }
  }
}

// Drafts of a sequence that decodes, as many as pages that are free and the budget hold. Whoever needs such a
// page for what is known takes it back.
int32_t Scheduler::room_for_drafts(Replica& replica, Sequence& sequence) {
  if (sequence.drafts.empty()) return 0;
  const Budget& budget = replica.budget;
  const auto wanted = static_cast<int32_t>(sequence.drafts.size());
  // A row for it and for each younger one, which may decode too.
  const auto others = static_cast<int32_t>(
      replica.running.end() - std::ranges::lower_bound(replica.running, sequence.id, {}, &Sequence::id));
  const int32_t most = std::min({wanted, budget.rows - others, budget.logit_rows - others});
  if (most <= 0) return 0;
  return std::max(0, reserve(sequence.id, sequence.num_tokens() + most) - sequence.num_tokens());
}

// The youngest sequence that has pages for drafts gives them up, and the drafts with them: nobody is
// preempted for what may be rejected. False where none has some.
bool Scheduler::take_back_drafts(Replica& replica) {
  const auto has_some = [this](const Sequence* sequence) {
    return sequence->decodes() &&
           std::ssize(sequence->table.pages) > num_pages_for(sequence->num_tokens(), limits_.page_size);
  };
  const auto found = std::find_if(replica.running.rbegin(), replica.running.rend(), has_some);
  if (found == replica.running.rend()) return false;
  Sequence& sequence = **found;
  if (const int32_t num_planned = sequence.num_planned - 1; num_planned > 0) {
    replica.budget.rows += num_planned;
    replica.budget.logit_rows += num_planned;
    sequence.num_planned = 1;
  }
  sequence.drafts.clear();
  replica.cache.shrink(sequence.table, num_pages_for(sequence.num_tokens(), limits_.page_size), sequence.id);
  return true;
}

// What is left of the budget goes to prompts that have begun. One that is short of pages takes a shorter
// chunk; one that gets none at all takes them from a younger sequence, or waits when there is no younger one.
void Scheduler::plan_prompts(Replica& replica) {
  for (size_t i = 0; i < replica.running.size(); ++i) {
    Sequence& sequence = *replica.running[i];
    if (!sequence.decodes()) {
      const int32_t in_budget = prompt_rows(replica, sequence, sequence.num_cached);
      const auto in_cache = [&] {
        const int64_t pages =
            static_cast<int64_t>(sequence.table.pages.size()) + replica.cache.num_available();
        return static_cast<int32_t>(
            std::min<int64_t>(pages * limits_.page_size - sequence.num_cached, in_budget));
      };
      while (in_cache() < in_budget && take_back_drafts(replica)) continue;
      while (in_budget > 0 && in_cache() <= 0 && replica.running.back() != &sequence)
        preempt(replica, *replica.running.back());
      const int32_t num_rows = chunk(replica, sequence, in_cache());
      // The shorter chunk may end elsewhere than the one that the budget was asked for.
      if (num_rows > 0) plan(replica, sequence, num_rows);
    }
  }
}

// Prompt rows that the budget allows the sequence in this step once `num_cached` tokens are there, pages left
// aside.
int32_t Scheduler::prompt_rows(const Replica& replica, const Sequence& sequence, int32_t num_cached) const {
  const Budget& budget = replica.budget;
  const int32_t num_pending = sequence.num_tokens() - num_cached;
  int32_t rows = std::min({num_pending, budget.prompt_rows, budget.rows});
  if (sequence.is_to_score()) {
    if (num_cached < sequence.num_scored) return std::min(rows, sequence.num_scored - num_cached);
    return std::min({rows, sequence.num_to_score - num_cached, budget.logit_rows});
  }
  if (rows == num_pending && budget.logit_rows == 0) --rows;  // the last row would want logits
  return rows;
}

void Scheduler::plan(Replica& replica, Sequence& sequence, int32_t num_rows) {
  Budget& budget = replica.budget;
  const int32_t num_pages = num_pages_for(sequence.num_cached + num_rows, limits_.page_size);
  while (!replica.cache.grow(sequence.table, num_pages, sequence.id)) {
    const bool has_more = take_back_drafts(replica);
    LOCKSTEP_CHECK(has_more, "{} rows of request {} were planned with {} pages available", num_rows,
                   sequence.id, replica.cache.num_available());
  }
  budget.rows -= num_rows;
  if (!sequence.decodes()) budget.prompt_rows -= num_rows;
  budget.logit_rows -= num_logit_rows(sequence.wanted(num_rows), num_rows);
  sequence.num_planned = num_rows;
  if (makes_snapshots(replica)) plan_snapshot(replica, sequence);
  LOCKSTEP_CHECK_GE(std::min({budget.rows, budget.prompt_rows, budget.logit_rows}), 0);
}

// Where what is kept once a sequence is to be copied, a chunk ends with a page: where others have gone on
// otherwise, before the prompt's last tokens, or at least not in the middle of one.
int32_t Scheduler::chunk(const Replica& replica, const Sequence& sequence, int32_t num_rows) const {
  if (!makes_snapshots(replica) || sequence.is_to_score() || num_rows <= 0) return num_rows;
  const int32_t begin = sequence.num_cached, end = begin + num_rows;
  const auto is_inside = [&](int32_t at) { return begin < at && at < end; };
  if (is_inside(sequence.wanted_snapshot)) return sequence.wanted_snapshot - begin;
  const int32_t last = (sequence.num_tokens() - 1) / limits_.page_size * limits_.page_size;
  if (is_inside(last) && last - sequence.last_snapshot >= limits_.tokens_between_snapshots / 4)
    return last - begin;
  const int32_t whole_pages = end / limits_.page_size * limits_.page_size;
  return end < sequence.num_tokens() && is_inside(whole_pages) ? whole_pages - begin : num_rows;
}

// A long prompt makes about eight copies on its way, so that one that goes on otherwise has not far to go
// back; while it generates a sequence makes some too, for whoever continues its text.
void Scheduler::plan_snapshot(Replica& replica, Sequence& sequence) {
  const int32_t end = sequence.num_cached + sequence.num_planned;
  if (end % limits_.page_size != 0 || end >= sequence.num_tokens() + (sequence.decodes() ? 1 : 0)) return;
  const int32_t since = end - sequence.last_snapshot;
  const int32_t last = (sequence.num_tokens() - 1) / limits_.page_size * limits_.page_size;
  const int32_t least = sequence.decodes() ? limits_.tokens_between_snapshots
                        : end == last      ? limits_.tokens_between_snapshots / 4
                                      : std::max(limits_.tokens_between_snapshots, sequence.num_tokens() / 8);
  if (end != sequence.wanted_snapshot && since < least) return;
  sequence.save_slot = replica.cache.snapshots().take();
  if (sequence.save_slot != SnapshotPool::kNone) sequence.last_snapshot = end;
}

// The copy belongs to the page with whose last token it was made, or is given up.
void Scheduler::end_snapshot(Replica& replica, Sequence& sequence, int32_t page) {
  SnapshotPool& snapshots = replica.cache.snapshots();
  sequence.load_slot = -1;
  const int32_t slot = std::exchange(sequence.save_slot, -1);
  if (slot < 0) return;
  if (page != PrefixTree::kNone && snapshots.at(page) == SnapshotPool::kNone)
    snapshots.keep(slot, page);
  else
    snapshots.give_back(slot);
}

// The first of every replica, by priority and then by age; a replica whose first cannot start is left for
// this step, so nobody passes it there.
void Scheduler::admit_waiting() {
  std::vector<uint8_t> blocked(replicas_.size(), 0);
  while (num_running_ < limits_.max_running()) {
    Sequence* first = first_waiting(blocked);
    if (first == nullptr) return;
    if (const auto hit = can_start(home(*first), *first)) {
      start(*first, *hit);
    } else if (!start_elsewhere(*first, blocked)) {
      blocked[static_cast<size_t>(first->replica)] = 1;
      continue;
    }
    for (size_t i = 0; i < replicas_.size(); ++i)
      if (!blocked[i] && &replicas_[i] != &home(*first)) replicas_[i].waiting.note_start(first->id);
  }
}

Sequence* Scheduler::first_waiting(const std::vector<uint8_t>& blocked) const {
  const auto place = [](const Replica& replica) {
    const Sequence& sequence = *replica.waiting.first();
    return std::tuple(!replica.waiting.is_first_due(), -sequence.priority, sequence.id);
  };
  const Replica* best = nullptr;
  for (const Replica& replica : replicas_) {
    if (replica.waiting.empty() || blocked[static_cast<size_t>(&replica - replicas_.data())]) continue;
    if (best == nullptr || place(replica) < place(*best)) best = &replica;
  }
  return best == nullptr ? nullptr : best->waiting.first();
}

// What it can start with, if it can start now.
std::optional<PrefixHit> Scheduler::can_start(const Replica& replica, const Sequence& sequence) const {
  if (replica.slots.num_free() == 0 || std::min(replica.budget.rows, replica.budget.prompt_rows) == 0)
    return std::nullopt;
  PrefixHit hit = find_prefix(replica, sequence);
  if (prompt_rows(replica, sequence, hit.num_pages() * limits_.page_size) <= 0 ||
      is_being_computed(replica, sequence, hit) || !has_pages_for(replica, sequence, hit))
    return std::nullopt;
  return hit;
}

// The last token is computed in any case: its logits are wanted. And so are all of a prompt that is to be
// scored.
PrefixHit Scheduler::find_prefix(const Replica& replica, const Sequence& sequence) const {
  if (sequence.is_to_score()) return {};
  return replica.cache.find(sequence.path(), (sequence.num_tokens() - 1) / limits_.page_size);
}

// Somebody is at work on the page that follows what the tree has: it is quicker to wait for it.
bool Scheduler::is_being_computed(const Replica& replica, const Sequence& sequence,
                                  const PrefixHit& hit) const {
  if (!replica.cache.shares() || sequence.is_to_score()) return false;
  // Whether somebody who runs has the same tokens up to there and has not come so far.
  const auto comes_to = [&](const Sequence& other, int32_t num_pages) {
    const auto last = static_cast<size_t>(num_pages - 1);
    return !other.is_to_score() && other.page_keys.size() > last &&
           other.page_keys[last] == sequence.page_keys[last] &&
           other.num_cached < num_pages * limits_.page_size;
  };
  const int32_t known = hit.num_matching, known_tokens = known * limits_.page_size;
  const bool may_wait = known_tokens + limits_.page_size < sequence.num_tokens();
  return std::ranges::any_of(replica.running, [&](const Sequence* other) {
    return (may_wait && comes_to(*other, known + 1)) ||
           (known > hit.num_pages() && other->wanted_snapshot == known_tokens && comes_to(*other, known));
  });
}

// Pages for all tokens of a sequence and for the one after; the last may not exist.
int32_t Scheduler::num_pages_wanted(const Sequence& sequence) const {
  return std::min(num_pages_for(int64_t{sequence.num_tokens()} + 1, limits_.page_size),
                  limits_.pages_per_replica);
}

// A sequence starts only when the pages that are available, less what the running ones still need for their
// known tokens and with what they have for drafts, hold all of its own: one that was preempted is not started
// just to be preempted again.
bool Scheduler::has_pages_for(const Replica& replica, const Sequence& sequence, const PrefixHit& hit) const {
  int64_t spare = replica.cache.num_available_beside(hit);
  for (const Sequence* other : replica.running)
    spare -= num_pages_wanted(*other) - static_cast<int64_t>(other->table.pages.size());
  return num_pages_wanted(sequence) - hit.num_pages() <= spare;
}

void Scheduler::start(Sequence& sequence, const PrefixHit& hit) {
  Replica& replica = home(sequence);
  sequence.slot = replica.slots.take(sequence.id);
  replica.by_slot[static_cast<size_t>(sequence.slot)] = &sequence;
  sequence.is_running = true;
  replica.cache.take(hit, sequence.table);
  sequence.num_cached = hit.num_pages() * limits_.page_size;
  if (sequence.num_from_cache < 0) {
    sequence.num_from_cache = sequence.num_cached;
    prefix_counts_.queried += static_cast<uint64_t>(sequence.num_prompt);
    prefix_counts_.hit += static_cast<uint64_t>(sequence.num_cached);
  }
  replica.waiting.take(sequence);
  replica.running.insert(std::ranges::upper_bound(replica.running, sequence.id, {}, &Sequence::id),
                         &sequence);
  ++num_running_;
  sequence.load_slot = hit.snapshot;
  sequence.last_snapshot = sequence.num_cached;
  sequence.wanted_snapshot = hit.num_matching > hit.num_pages() ? hit.num_matching * limits_.page_size : 0;
  plan(replica, sequence, chunk(replica, sequence, prompt_rows(replica, sequence, sequence.num_cached)));
}

// A sequence that waits holds nothing, so it may move to a replica that can run it now, has nobody waiting
// and is not the fuller of the two for it. Otherwise replicas that were filled alike would idle while
// another's queue is long.
bool Scheduler::start_elsewhere(Sequence& sequence, const std::vector<uint8_t>& blocked) {
  if (sequence.is_pinned) return false;
  Replica* best = nullptr;
  std::optional<PrefixHit> hit_of_best;
  for (Replica& replica : replicas_) {
    if (&replica == &home(sequence) || !replica.waiting.empty() ||
        blocked[static_cast<size_t>(&replica - replicas_.data())])
      continue;
    if (replica.num_tokens + sequence.num_tokens() > home(sequence).num_tokens ||
        (best != nullptr && replica.num_tokens >= best->num_tokens))
      continue;
    if (auto hit = can_start(replica, sequence)) {
      best = &replica;
      hit_of_best = std::move(hit);
    }
  }
  if (best == nullptr) return false;
  Replica& from = home(sequence);
  from.waiting.remove(sequence);
  from.num_tokens -= sequence.num_tokens();
  best->num_tokens += sequence.num_tokens();
  best->waiting.push(sequence);
  sequence.replica = static_cast<int32_t>(best - replicas_.data());
  start(sequence, *hit_of_best);
  return true;
}

void Scheduler::stop(Sequence& sequence, Pages pages) {
  Replica& replica = home(sequence);
  replica.slots.release(sequence.slot, sequence.id);
  replica.by_slot[static_cast<size_t>(sequence.slot)] = nullptr;
  sequence.slot = -1;
  sequence.is_running = false;
  sequence.num_cached = 0;
  sequence.num_planned = 0;
  sequence.num_verified = 0;
  sequence.drafts.clear();
  end_snapshot(replica, sequence, PrefixTree::kNone);
  replica.cache.release(sequence.table, sequence.id, pages);
  replica.running.erase(std::ranges::lower_bound(replica.running, sequence.id, {}, &Sequence::id));
  --num_running_;
}

void Scheduler::preempt(Replica& replica, Sequence& sequence) {
  LOCKSTEP_CHECK(replica.running.size() > 1,
                 "request {} of {} tokens is alone and lacks pages; its replica has {}", sequence.id,
                 sequence.num_tokens(), replica.cache.num_pages());
  if (sequence.num_planned > 0) {  // a decode row: prompts are planned after all of these, and oldest first
    LOCKSTEP_CHECK(sequence.decodes(), "request {} has {} prompt rows planned", sequence.id,
                   sequence.num_planned);
    replica.budget.rows += sequence.num_planned;
    replica.budget.logit_rows += sequence.num_planned;
  }
  // Drafts that were accepted came after the commit that named the pages.
  if (replica.cache.shares())
    extend_page_keys(sequence.cache_salt, sequence.tokens, limits_.page_size, sequence.page_keys);
  stop(sequence);
  replica.waiting.push_preempted(sequence);
  ++num_preemptions_;
}

void Scheduler::commit() {
  LOCKSTEP_CHECK(phase_ == Phase::kInStep, "no step is running after step {}", num_steps_);
  phase_ = Phase::kBetweenSteps;
  for (Replica& replica : replicas_) {
    for (size_t i = 0; i < replica.running.size(); ++i) {
      fetch_sequence_ahead(replica.running, i);
      Sequence* sequence = replica.running[i];
      const bool is_scored =
          sequence->num_planned > 0 && sequence->wanted(sequence->num_planned) == WantedLogits::kAll;
      // Rows of drafts count only once they are accepted.
      const int32_t num_known = std::min(sequence->num_planned, sequence->num_pending());
      if (sequence->num_planned > 0) sequence->num_verified = sequence->num_planned - num_known;
      sequence->num_cached += num_known;
      sequence->num_planned = 0;
      sequence->drafts.clear();
      if (is_scored) sequence->num_scored = sequence->num_cached;
      if (const int32_t num_full = sequence->num_cached / limits_.page_size;
          num_full > sequence->table.num_shared && replica.cache.shares()) {
        extend_page_keys(sequence->cache_salt, sequence->tokens, limits_.page_size, sequence->page_keys);
        replica.cache.share(sequence->path(), num_full, sequence->table, sequence->id);
      }
      if (sequence->load_slot < 0 && sequence->save_slot < 0) continue;
      const int32_t last_page = sequence->num_cached / limits_.page_size - 1;
      end_snapshot(replica, *sequence,
                   last_page >= 0 && last_page < sequence->table.num_shared
                       ? sequence->table.pages[static_cast<size_t>(last_page)]
                       : PrefixTree::kNone);
    }
  }
}

void Scheduler::abandon() {
  phase_ = Phase::kBetweenSteps;
  for (Replica& replica : replicas_)
    for (Sequence* sequence : replica.running) {
      sequence->num_planned = 0;
      end_snapshot(replica, *sequence, PrefixTree::kNone);
    }
}

void Scheduler::append(RequestId id, int32_t token) { append_to(find(id), token); }

void Scheduler::append(int32_t replica, const SequenceRows& rows, int32_t token) {
  append_to(seated(replica, rows), token);
}

void Scheduler::fetch_ahead(int32_t replica, std::span<const SequenceRows> rows, size_t at) const {
  const std::vector<Sequence*>& seats = replicas_[static_cast<size_t>(replica)].by_slot;
  const auto ahead = [&](size_t by) {
    return at + by < rows.size() ? seats[static_cast<size_t>(rows[at + by].slot)] : nullptr;
  };
  if (const Sequence* sequence = ahead(kSequencesAhead)) fetch_lines(*sequence);
  if (const Sequence* sequence = ahead(kTokensAhead))
    __builtin_prefetch(sequence->tokens.data() + sequence->tokens.size(), 1);
}

void Scheduler::append_to(Sequence& sequence, int32_t token) {
  LOCKSTEP_CHECK(sequence.is_running, "request {} does not run", sequence.id);
  LOCKSTEP_CHECK_EQ(sequence.num_pending(), 0);
  LOCKSTEP_CHECK_LT(sequence.num_tokens(), limits_.max_sequence_tokens());
  sequence.tokens.push_back(token);
  ++home(sequence).num_tokens;
  ++sequence.account->tokens_had;
}

void Scheduler::accept_draft(int32_t replica, const SequenceRows& rows) {
  Sequence& sequence = seated(replica, rows);
  LOCKSTEP_CHECK(sequence.decodes() && sequence.num_verified > 0,
                 "request {} has {} tokens that are not cached, {} drafts were run", sequence.id,
                 sequence.num_pending(), sequence.num_verified);
  ++sequence.num_cached;
  --sequence.num_verified;
}

void Scheduler::propose(RequestId id, std::vector<int32_t> drafts) {
  Sequence& sequence = find(id);
  LOCKSTEP_CHECK(phase_ == Phase::kBetweenSteps, "step {} is running", num_steps_);
  LOCKSTEP_CHECK(sequence.is_running && sequence.decodes(), "request {} does not generate", id);
  sequence.drafts = std::move(drafts);
}

int32_t Scheduler::reserve(RequestId id, int32_t num_tokens) {
  Sequence& sequence = find(id);
  LOCKSTEP_CHECK(sequence.is_running, "request {} does not run", id);
  Replica& replica = home(sequence);
  const auto held = static_cast<int64_t>(sequence.table.pages.size());
  num_tokens = std::min(num_tokens, limits_.max_sequence_tokens());
  const int64_t wanted = num_pages_for(num_tokens, limits_.page_size);
  const int64_t pages = std::min(wanted, held + replica.cache.num_available());
  const bool grew =
      pages <= held || replica.cache.grow(sequence.table, static_cast<int32_t>(pages), sequence.id);
  LOCKSTEP_CHECK(grew, "{} of {} available pages were not given to request {}", pages - held,
                 replica.cache.num_available(), id);
  return static_cast<int32_t>(
      std::min<int64_t>(static_cast<int64_t>(sequence.table.pages.size()) * limits_.page_size, num_tokens));
}

planning::StepPlan Scheduler::plan_drafts(std::vector<planning::ReplicaCounts> counts) {
  LOCKSTEP_CHECK(phase_ == Phase::kBetweenSteps, "step {} is running", num_steps_);
  return planning::make_step_plan(num_steps_++, limits_.shape, std::move(counts), planning::Forward::kDraft);
}

void Scheduler::remove(RequestId id, Pages pages) {
  LOCKSTEP_CHECK(phase_ == Phase::kBetweenSteps, "request {} may be in step {}", id, num_steps_);
  Sequence& sequence = find(id);
  if (sequence.is_running)
    stop(sequence, pages);
  else
    home(sequence).waiting.remove(sequence);
  home(sequence).num_tokens -= sequence.num_tokens();
  sequences_.erase(id);
  if (empty()) check_idle();
}

void Scheduler::clear_cache() {
  for (Replica& replica : replicas_) replica.cache.clear();
}

Sequence& Scheduler::seated(int32_t replica, const SequenceRows& rows) {
  const std::vector<Sequence*>& seats = replicas_[static_cast<size_t>(replica)].by_slot;
  Sequence* sequence = seats[static_cast<size_t>(rows.slot)];
  LOCKSTEP_CHECK(sequence != nullptr && sequence->id == rows.id,
                 "request {} has slot {} of replica {} no more", rows.id, rows.slot, replica);
  return *sequence;
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
          .pages_used = r.cache.num_used(),
          .pages_total = r.cache.num_pages(),
          .slots_used = r.slots.num_used(),
          .slots_total = r.slots.num_slots(),
          .pages_cached = r.cache.num_unused()};
}

}  // namespace lockstep::runtime
