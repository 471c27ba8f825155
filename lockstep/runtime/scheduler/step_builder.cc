// The part of the scheduler that writes down a planned step, and the checks of its books.
#include <algorithm>

#include "lockstep/runtime/scheduler/scheduler.h"

namespace lockstep::runtime {
namespace {

// Into `rows`, whose vectors keep their memory.
void write_rows(const Sequence& sequence, int32_t page_size, SequenceRows& rows) {
  const auto begin = sequence.tokens.begin() + sequence.num_cached;
  const auto first_page = sequence.table.pages.begin();
  rows.id = sequence.id;
  rows.kind = sequence.decodes() ? RowKind::kDecode : RowKind::kPrompt;
  rows.wanted = sequence.wanted(sequence.num_planned);
  const int32_t num_known = std::min(sequence.num_planned, sequence.num_pending());
  rows.token_ids.assign(begin, begin + num_known);
  rows.token_ids.insert(rows.token_ids.end(), sequence.drafts.begin(),
                        sequence.drafts.begin() + (sequence.num_planned - num_known));
  rows.context = sequence.num_cached + sequence.num_planned;
  rows.page_table.assign(first_page, first_page + num_pages_for(rows.context, page_size));
  rows.slot = sequence.slot;
  rows.load_slot = sequence.load_slot;
  rows.save_slot = sequence.save_slot;
}

}  // namespace

// Decode rows first, then prompts, each oldest first: kernels for either kind then see a range of rows.
planning::ReplicaCounts Scheduler::fill(const Replica& replica, std::vector<SequenceRows>& rows) const {
  planning::ReplicaCounts counts;
  size_t num_sequences = 0;
  for (const RowKind kind : {RowKind::kDecode, RowKind::kPrompt}) {
    for (const Sequence* sequence : replica.running) {
      if (sequence->num_planned == 0 || sequence->decodes() != (kind == RowKind::kDecode)) continue;
      if (num_sequences == rows.size()) rows.emplace_back();
      write_rows(*sequence, limits_.page_size, rows[num_sequences]);
      const int32_t end = counts.num_target_rows + sequence->num_planned;
      const WantedLogits wanted = rows[num_sequences++].wanted;
      for (int32_t row = end - num_logit_rows(wanted, sequence->num_planned); row < end; ++row)
        counts.logit_rows.push_back(row);
      counts.num_target_rows = end;
      ++counts.num_requests;
    }
  }
  rows.resize(num_sequences);
  return counts;
}

StepInput Scheduler::build() {
  StepInput input = std::exchange(spare_, {});
  input.replicas.resize(replicas_.size());
  std::vector<planning::ReplicaCounts> counts;
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
