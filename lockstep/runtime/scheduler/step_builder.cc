// The part of the scheduler that writes down a planned step, and the checks of its books.
#include <algorithm>

#include "lockstep/runtime/scheduler/scheduler.h"

namespace lockstep::runtime {
namespace {

// Rows of a step before keep their pages: with thousands of sequences, copying all tables anew would be most
// of a step's forming.
void write_pages(const PageTable& table, int32_t num_pages, SequenceRows& rows) {
  const auto wanted = static_cast<size_t>(num_pages);
  const size_t kept = rows.pages_version == table.version ? std::min(rows.page_table.size(), wanted) : 0;
  rows.page_table.resize(kept);
  rows.page_table.insert(rows.page_table.end(), table.pages.begin() + static_cast<std::ptrdiff_t>(kept),
                         table.pages.begin() + num_pages);
  rows.pages_version = table.version;
}

// The sequence's own rows of the step before, if they are near: both lists are in order of age, and those
// that have ended since are passed over.
SequenceRows& rows_for(const Sequence& sequence, size_t place, std::vector<SequenceRows>& rows) {
  constexpr size_t kMostPassed = 16;
  if (place == rows.size()) return rows.emplace_back();
  const size_t end = std::min(rows.size(), place + kMostPassed);
  size_t at = place;
  while (at < end && rows[at].id < sequence.id) ++at;
  if (at != place && at < end && rows[at].id == sequence.id) std::swap(rows[place], rows[at]);
  return rows[place];
}

void fetch_tokens_ahead(std::span<Sequence* const> sequences, size_t at) {
  if (at + kTokensAhead >= sequences.size()) return;
  const Sequence& ahead = *sequences[at + kTokensAhead];
  __builtin_prefetch(ahead.tokens.data() + ahead.num_cached);
}

// Into `rows`, whose vectors keep their memory.
void write_rows(const Sequence& sequence, int32_t page_size, SequenceRows& rows) {
  const auto begin = sequence.tokens.begin() + sequence.num_cached;
  rows.id = sequence.id;
  rows.kind = sequence.decodes() ? RowKind::kDecode : RowKind::kPrompt;
  rows.wanted = sequence.wanted(sequence.num_planned);
  const int32_t num_known = std::min(sequence.num_planned, sequence.num_pending());
  rows.token_ids.assign(begin, begin + num_known);
  rows.token_ids.insert(rows.token_ids.end(), sequence.drafts.begin(),
                        sequence.drafts.begin() + (sequence.num_planned - num_known));
  rows.context = sequence.num_cached + sequence.num_planned;
  write_pages(sequence.table, num_pages_for(rows.context, page_size), rows);
  rows.slot = sequence.slot;
  rows.load_slot = sequence.load_slot;
  rows.save_slot = sequence.save_slot;
}

}  // namespace

// Decode rows first, then prompts, each oldest first: kernels for either kind then see a range of rows.
planning::ReplicaCounts Scheduler::fill(const Replica& replica, std::vector<SequenceRows>& rows) const {
  planning::ReplicaCounts counts;
  counts.logit_rows.reserve(replica.running.size());
  size_t num_sequences = 0;
  const auto add = [&](const Sequence& sequence) {
    SequenceRows& own = rows_for(sequence, num_sequences++, rows);
    write_rows(sequence, limits_.page_size, own);
    const int32_t end = counts.num_target_rows + sequence.num_planned;
    for (int32_t row = end - num_logit_rows(own.wanted, sequence.num_planned); row < end; ++row)
      counts.logit_rows.push_back(row);
    counts.num_target_rows = end;
    ++counts.num_requests;
  };
  size_t num_prompts = 0;
  for (size_t i = 0; i < replica.running.size(); ++i) {
    fetch_sequence_ahead(replica.running, i);
    fetch_tokens_ahead(replica.running, i);
    const Sequence& sequence = *replica.running[i];
    if (sequence.num_planned == 0) continue;
    if (sequence.decodes())
      add(sequence);
    else
      ++num_prompts;
  }
  for (size_t i = 0; num_prompts > 0 && i < replica.running.size(); ++i) {
    const Sequence& sequence = *replica.running[i];
    if (sequence.num_planned == 0 || sequence.decodes()) continue;
    add(sequence);
    counts.prompt_rows.push_back(sequence.num_planned);
    --num_prompts;
  }
  rows.resize(num_sequences);
  return counts;
}

StepInput Scheduler::build() {
  StepInput input = std::exchange(spare_, {});
  input.replicas.resize(replicas_.size());
  std::vector<planning::ReplicaCounts> counts;
  counts.reserve(replicas_.size());
  int64_t num_rows = 0;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    counts.push_back(fill(replicas_[i], input.replicas[i]));
    num_rows += counts.back().num_target_rows;
  }
  LOCKSTEP_CHECK(num_rows > 0, "{} sequences are open and none can advance", sequences_.size());
  input.plan = planning::make_step_plan(num_steps_++, limits_.shape, std::move(counts));
  return input;
}

void Scheduler::check_idle() const {
  LOCKSTEP_CHECK_EQ(sequences_.size(), size_t{0});
  LOCKSTEP_CHECK_EQ(num_running_, 0);
  for (const Replica& replica : replicas_) {
    LOCKSTEP_CHECK_EQ(replica.cache.num_used(), 0);
    replica.cache.check();
    const SnapshotPool& snapshots = replica.cache.snapshots();
    LOCKSTEP_CHECK_EQ(snapshots.num_free() + snapshots.num_kept(), snapshots.size());
    LOCKSTEP_CHECK_EQ(replica.num_tokens, 0);
    LOCKSTEP_CHECK_EQ(replica.waiting.size() + replica.running.size(), size_t{0});
    LOCKSTEP_CHECK_EQ(replica.slots.num_used(), 0);
  }
}

// The pages of a sequence, of which others may use those at the beginning too.
void Scheduler::check_table(const Replica& replica, const Sequence& sequence,
                            std::vector<int32_t>& users) const {
  const PageTable& table = sequence.table;
  LOCKSTEP_CHECK_LE(sequence.num_cached, sequence.num_tokens());
  LOCKSTEP_CHECK_LE(int64_t{sequence.num_cached},
                    static_cast<int64_t>(table.pages.size()) * limits_.page_size);
  LOCKSTEP_CHECK_LE(int64_t{table.num_shared} * limits_.page_size, int64_t{sequence.num_cached});
  for (size_t i = 0; i < table.pages.size(); ++i) {
    const bool is_shared = i < static_cast<size_t>(table.num_shared);
    LOCKSTEP_CHECK_EQ(replica.cache.owner_of(table.pages[i]), is_shared ? PagePool::kTree : sequence.id);
    if (is_shared) ++users[static_cast<size_t>(table.pages[i])];
  }
}

void Scheduler::check_invariants() const {
  size_t num_listed = 0;
  int32_t num_running = 0;
  for (const Replica& replica : replicas_) {
    int64_t num_tokens = 0, num_own_pages = 0;
    std::vector<int32_t> users(static_cast<size_t>(replica.cache.num_pages()), 0);
    std::vector<const Sequence*> all(replica.running.begin(), replica.running.end());
    for (const auto& [id, sequence] : replica.waiting.by_age()) all.push_back(sequence);
    num_listed += all.size();
    for (const Sequence* sequence : all) {
      LOCKSTEP_CHECK_EQ(&replicas_[static_cast<size_t>(sequence->replica)] == &replica, true);
      check_table(replica, *sequence, users);
      if (sequence->is_running) LOCKSTEP_CHECK_EQ(replica.slots.owner_of(sequence->slot), sequence->id);
      num_tokens += sequence->num_tokens();
      num_own_pages += static_cast<int64_t>(sequence->table.pages.size()) - sequence->table.num_shared;
    }
    const bool in_order = std::ranges::is_sorted(replica.running, {}, &Sequence::id);
    LOCKSTEP_CHECK(in_order && std::ranges::all_of(replica.running, &Sequence::is_running),
                   "{} running sequences are not in order", replica.running.size());
    int64_t num_shared_pages = 0;
    for (size_t page = 0; page < users.size(); ++page) {
      num_shared_pages += users[page] > 0 ? 1 : 0;
      if (replica.cache.owner_of(static_cast<int32_t>(page)) == PagePool::kTree)
        LOCKSTEP_CHECK_EQ(users[page], replica.cache.num_users(static_cast<int32_t>(page)));
    }
    replica.cache.check();
    LOCKSTEP_CHECK_EQ(num_tokens, replica.num_tokens);
    LOCKSTEP_CHECK_EQ(num_own_pages + num_shared_pages, int64_t{replica.cache.num_used()});
    LOCKSTEP_CHECK_EQ(replica.running.size(), static_cast<size_t>(replica.slots.num_used()));
    num_running += static_cast<int32_t>(replica.running.size());
  }
  LOCKSTEP_CHECK_EQ(num_listed, sequences_.size());
  LOCKSTEP_CHECK_EQ(num_running, num_running_);
  LOCKSTEP_CHECK_LE(num_running, limits_.max_running());
}

}  // namespace lockstep::runtime
