#include "lockstep/runtime/spec_decode/draft_round.h"

#include <algorithm>
#include <numeric>

#include "lockstep/runtime/sampler/sampler.h"

namespace lockstep::runtime {

bool can_draft(const DrawState& state) {
  return state.constraint == nullptr && !uses_token_counts(state.params);
}

DraftRound::DraftRound(const StepInput& step, Scheduler& scheduler, const Vocabulary& vocabulary,
                       FindState find_state, int32_t num_drafts)
    : step_(step),
      scheduler_(scheduler),
      vocabulary_(vocabulary),
      find_state_(std::move(find_state)),
      num_drafts_(num_drafts),
      drafters_(step.replicas.size()) {}

std::optional<StepInput> DraftRound::next() {
  if (failure_) std::rethrow_exception(failure_);
  if (num_forwards_++ == 0) return first();
  StepInput input = further();
  for (const std::vector<SequenceRows>& replica : input.replicas)
    if (!replica.empty()) return input;
  finish();
  return std::nullopt;
}

// No more than the request may still have, and one less: the step that verifies them draws one itself.
int32_t DraftRound::num_wanted(const Sequence& sequence, const DrawState& state) const {
  if (!sequence.is_running || !sequence.decodes() || !can_draft(state)) return 0;
  const int32_t wanted = std::min(num_drafts_, state.max_new_tokens - state.num_output - 1);
  if (wanted <= 0) return 0;
  // Drafts stand in pages too.
  return scheduler_.reserve(sequence.id, sequence.num_tokens() + wanted) - sequence.num_tokens();
}

void DraftRound::add_drafter(const SequenceRows& rows, int32_t first_row, std::vector<Drafter>& drafters) {
  const Sequence& sequence = scheduler_.sequence(rows.id);
  const DrawState& state = find_state_(rows.id);
  const int32_t wanted = num_wanted(sequence, state);
  if (wanted <= 0) return;
  const int32_t first_token = rows.context - static_cast<int32_t>(rows.token_ids.size());
  drafters.push_back({.id = rows.id,
                      .state = &state,
                      .num_tokens = sequence.num_tokens(),
                      .num_wanted = wanted,
                      .row = first_row + sequence.num_cached - 1 - first_token,  // the last that was accepted
                      .page_table = sequence.table.pages,
                      .slot = sequence.slot,
                      .drafts = {}});
}

StepInput DraftRound::first() {
  StepInput input;
  std::vector<planning::ReplicaCounts> counts;
  for (size_t replica = 0; replica < step_.replicas.size(); ++replica) {
    planning::ReplicaCounts& count = counts.emplace_back();
    std::vector<Drafter>& drafters = drafters_[replica];
    std::vector<SequenceRows>& sequences = input.replicas.emplace_back(step_.replicas[replica]);
    for (SequenceRows& rows : sequences) {
      const bool is_known = scheduler_.knows(rows.id);
      if (is_known) add_drafter(rows, count.num_draft_rows, drafters);
      // The token that followed each row. Behind a draft that was rejected, or the end of a request, none
      // did: such a row is written over before anybody looks at it.
      const size_t num_rows = rows.token_ids.size();
      for (size_t row = 0; row < num_rows; ++row) {
        const size_t at = static_cast<size_t>(rows.context) - num_rows + row + 1;
        const int32_t then = row + 1 < num_rows ? rows.token_ids[row + 1] : 0;
        const std::vector<int32_t>* tokens = is_known ? &scheduler_.sequence(rows.id).tokens : nullptr;
        rows.token_ids[row] = tokens != nullptr && at < tokens->size() ? (*tokens)[at] : then;
      }
      rows.wanted = WantedLogits::kNone;
      rows.use = LogitUse::kAny;
      ++count.num_requests;
      count.num_draft_rows += static_cast<int32_t>(num_rows);
    }
    for (const Drafter& drafter : drafters) count.logit_rows.push_back(drafter.row);
    std::vector<int32_t>& kept = input.kept_rows.emplace_back(static_cast<size_t>(count.num_draft_rows));
    std::iota(kept.begin(), kept.end(), 0);
  }
  input.plan = scheduler_.plan_drafts(std::move(counts));
  return input;
}

// One row a request that wants more: its last draft, which follows the row that it was drawn from.
StepInput DraftRound::further() {
  StepInput input;
  std::vector<planning::ReplicaCounts> counts;
  bool is_empty = true;
  for (std::vector<Drafter>& drafters : drafters_) {
    planning::ReplicaCounts& count = counts.emplace_back();
    std::vector<SequenceRows>& sequences = input.replicas.emplace_back();
    std::vector<int32_t>& kept = input.kept_rows.emplace_back();
    for (Drafter& drafter : drafters) {
      const auto num_made = static_cast<int32_t>(drafter.drafts.size());
      if (drafter.is_done() || num_made < num_forwards_ - 1) {  // it has all, or its last draw failed
        drafter.row = -1;
        continue;
      }
      sequences.push_back({.id = drafter.id,
                           .kind = RowKind::kDecode,
                           .token_ids = {drafter.drafts.back()},
                           .context = drafter.num_tokens + num_made - 1,
                           .page_table = drafter.page_table,
                           .slot = drafter.slot});
      kept.push_back(drafter.row);
      drafter.row = count.num_draft_rows++;
      count.logit_rows.push_back(drafter.row);
      ++count.num_requests;
      is_empty = false;
    }
  }
  if (!is_empty) input.plan = scheduler_.plan_drafts(std::move(counts));
  return input;
}

void DraftRound::take(const LogitRow& row) noexcept {
  try {
    std::vector<Drafter>& drafters = drafters_[static_cast<size_t>(row.replica)];
    const auto drafter =
        std::find_if(drafters.begin(), drafters.end(), [&](const Drafter& d) { return d.row == row.row; });
    LOCKSTEP_CHECK(drafter != drafters.end(), "row {} of replica {} has no draft to give", row.row,
                   row.replica);
    if (!row.fault.empty()) return;
    const DrawState& state = *drafter->state;
    const auto num_made = static_cast<int32_t>(drafter->drafts.size());
    const bool may_end = state.num_output + num_made >= state.min_new_tokens;
    const TokenCounts none;
    const Result<OutputToken> drawn = draw_token(
        {.logits = row.logits,
         .params = state.params,
         .counts = none,
         .barred = may_end ? std::span<const int32_t>() : state.ending_ids,
         .num_valid_tokens = vocabulary_.num_valid_tokens,
         .seed = state.seed,
         .position = static_cast<uint64_t>(drafter->num_tokens) + static_cast<uint64_t>(num_made)});
    if (drawn) drafter->drafts.push_back(drawn->token_id);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void DraftRound::finish() {
  for (std::vector<Drafter>& drafters : drafters_)
    for (Drafter& drafter : drafters)
      if (!drafter.drafts.empty()) scheduler_.propose(drafter.id, std::move(drafter.drafts));
}

}  // namespace lockstep::runtime
