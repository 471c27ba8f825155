#include "lockstep/runtime/sampler/step_draws.h"

#include <algorithm>
#include <ctime>

#include "lockstep/runtime/sampler/sampler.h"
#include "lockstep/runtime/scheduler/sequence.h"

namespace lockstep::runtime {
namespace {

constexpr double kMostConstraintSeconds = 0.5;

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

bool needs_largest_only(const DrawState& state) {
  const bool may_end = state.num_output >= state.min_new_tokens;
  return draws_largest(state.params) && state.num_top_logprobs < 0 && !state.constraint &&
         (may_end || state.ending_ids.empty());
}

StepDraws::StepDraws(const StepInput& input, const Vocabulary& vocabulary, const FindState& find_state)
    : input_(input), vocabulary_(vocabulary) {
  for (const std::vector<SequenceRows>& sequences : input.replicas) {
    first_of_replica_.push_back(wanted_.size());
    std::vector<size_t>& firsts = first_of_sequence_.emplace_back();
    for (const SequenceRows& rows : sequences) {
      firsts.push_back(wanted_.size());
      if (rows.wanted != WantedLogits::kNone) add(rows, find_state(rows.id));
    }
    firsts.push_back(wanted_.size());
  }
  results_.resize(wanted_.size());
  taken_ = std::vector<std::atomic<uint8_t>>(wanted_.size());
}

void StepDraws::add(const SequenceRows& rows, const DrawState& state) {
  const auto num_rows = static_cast<int32_t>(rows.token_ids.size());
  const bool is_scored = rows.wanted == WantedLogits::kAll;
  const bool is_each = rows.wanted == WantedLogits::kEach;
  const bool ends_known = !is_scored || rows.context == state.num_prompt;
  for (int32_t i = num_logit_rows(rows.wanted, num_rows) - 1; i >= 0; --i) {
    const bool is_last = i == 0;
    wanted_.push_back({.state = &state,
                       .position = is_each ? rows.context - i : rows.context,
                       .next = rows.context - i,
                       .num_ahead = is_each ? num_rows - 1 - i : 0,
                       .draws = (is_last || is_each) && ends_known && state.max_new_tokens > 0,
                       .is_scored = is_scored,
                       .ends_scores = is_scored && is_last && ends_known});
  }
}

void StepDraws::take(const LogitRow& row) noexcept {
  try {
    take_row(row);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

size_t StepDraws::find_wanted(const LogitRow& row) const {
  LOCKSTEP_CHECK_GE(row.replica, 0);
  LOCKSTEP_CHECK_LT(static_cast<size_t>(row.replica), input_.plan.counts.size());
  const std::vector<int32_t>& rows = input_.plan.counts[static_cast<size_t>(row.replica)].logit_rows;
  const auto found = std::lower_bound(rows.begin(), rows.end(), row.row);
  LOCKSTEP_CHECK(found != rows.end() && *found == row.row,
                 "the logits of row {} of replica {} are not wanted in step {}", row.row, row.replica,
                 input_.plan.step);
  return first_of_replica_[static_cast<size_t>(row.replica)] + static_cast<size_t>(found - rows.begin());
}

void StepDraws::take_row(const LogitRow& row) {
  const size_t idx = find_wanted(row);
  LOCKSTEP_CHECK(taken_[idx].exchange(1) == 0, "the logits of row {} of replica {} came twice in step {}",
                 row.row, row.replica, input_.plan.step);
  if (!row.fault.empty()) {
    results_[idx].fault = row.fault;
    return;
  }
  if (row.largest != kNoToken) {
    const WantedRow& wanted = wanted_[idx];
    LOCKSTEP_CHECK(
        wanted.draws && !wanted.is_scored && wanted.num_ahead == 0 && needs_largest_only(*wanted.state),
        "row {} of replica {} came without the logits that its draw in step {} needs", row.row, row.replica,
        input_.plan.step);
    results_[idx].token.token_id = row.largest;
    return;
  }
  LOCKSTEP_CHECK_EQ(row.logits.size(), static_cast<size_t>(vocabulary_.num_logits));
  results_[idx] = draw(wanted_[idx], row.logits);
}

RowResult StepDraws::draw(const WantedRow& wanted, std::span<float> logits) const {
  RowResult result;
  const DrawState& state = *wanted.state;
  // Scores first: a draw spoils the logits.
  if (wanted.is_scored) result.top = largest(logits, static_cast<size_t>(state.prompt_top_logits));
  if (wanted.is_scored && state.prompt_logprobs >= 0 && wanted.next < state.num_prompt)
    result.prompt_token = scored_token(logits, state.scored_prompt[static_cast<size_t>(wanted.next)],
                                       state.prompt_logprobs, vocabulary_.num_valid_tokens);
  if (wanted.ends_scores) result.last_logits.assign(logits.begin(), logits.end());
  if (!wanted.draws) return result;
  const bool may_end = state.num_output + wanted.num_ahead >= state.min_new_tokens;
  std::vector<uint32_t> allowed;
  if (state.constraint) {
    allowed.resize((logits.size() + 31) / 32);
    try {
      const double begin = thread_cpu_seconds();
      state.constraint->allow(allowed);
      // All requests of the step wait for it, and an ambiguous grammar takes longer with every token.
      if (const double took = thread_cpu_seconds() - begin; took > kMostConstraintSeconds) {
        result.fault = fmt::format("the constraint of the output took {:.1f} s for one token, more than {} s",
                                   took, kMostConstraintSeconds);
        return result;
      }
    } catch (const std::exception& failure) {  // the request's own, and no other's
      result.fault = fmt::format("the constraint of the output failed: {}", failure.what());
      return result;
    }
  }
  Result<OutputToken> drawn = draw_token({.logits = logits,
                                          .params = state.params,
                                          .counts = state.counts,
                                          .barred = may_end ? std::span<const int32_t>() : state.ending_ids,
                                          .allowed = allowed,
                                          .num_valid_tokens = vocabulary_.num_valid_tokens,
                                          .seed = state.seed,
                                          .position = static_cast<uint64_t>(wanted.position),
                                          .num_top_logprobs = state.num_top_logprobs});
  if (drawn)
    result.token = std::move(drawn).value();
  else
    result.fault = drawn.error().message;
  return result;
}

void StepDraws::finish() {
  if (failure_) std::rethrow_exception(failure_);
  const auto missing = std::find(taken_.begin(), taken_.end(), 0);
  LOCKSTEP_CHECK(missing == taken_.end(), "{} of {} rows of logits did not come in step {}",
                 std::count(taken_.begin(), taken_.end(), 0), taken_.size(), input_.plan.step);
}

std::span<RowResult> StepDraws::results(int32_t replica, int32_t idx) {
  const std::vector<size_t>& firsts = first_of_sequence_[static_cast<size_t>(replica)];
  const size_t begin = firsts[static_cast<size_t>(idx)], end = firsts[static_cast<size_t>(idx) + 1];
  return std::span(results_).subspan(begin, end - begin);
}

}  // namespace lockstep::runtime
