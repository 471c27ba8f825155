#include "lockstep/runtime/step_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/runtime/sampler/sampler.h"
#include "lockstep/runtime/spec_decode/draft_round.h"

namespace lockstep::runtime {
namespace {

NewSequence sequence_of(RequestId id, const Request& request) {
  return {.id = id,
          .prompt = request.prompt,
          .prompt_logits = request.prompt_top_logits > 0 || request.prompt_logprobs >= 0
                               ? WantedLogits::kAll
                               : WantedLogits::kLast,
          .replica = request.replica,
          .cache_salt = request.cache_salt,
          .priority = request.priority,
          .tenant = request.tenant};
}

DrawState draw_state_of(const Request& request, uint64_t seed, const std::vector<int32_t>& eos_token_ids) {
  DrawState state{.params = request.sampling,
                  .seed = seed,
                  .num_top_logprobs = request.num_top_logprobs,
                  .prompt_top_logits = request.prompt_top_logits,
                  .prompt_logprobs = request.prompt_logprobs,
                  .num_prompt = static_cast<int32_t>(request.prompt.size()),
                  .max_new_tokens = request.max_new_tokens,
                  .min_new_tokens = request.min_new_tokens};
  state.ending_ids = request.stop_token_ids;
  if (!request.ignore_eos)
    state.ending_ids.insert(state.ending_ids.end(), eos_token_ids.begin(), eos_token_ids.end());
  if (request.prompt_logprobs >= 0) state.scored_prompt = request.prompt;
  state.constraint = request.constraint;
  if (uses_token_counts(request.sampling)) state.counts = TokenCounts(request.prompt);
  return state;
}

}  // namespace

StepLoop::StepLoop(StepLoopConfig config, Executor& executor)
    : config_(std::move(config)), executor_(executor), scheduler_(config_.limits) {
  totals_.num_ranks = config_.limits.shape.num_replicas * config_.limits.shape.ranks_per_replica;
  totals_.last_step_rows.assign(static_cast<size_t>(totals_.num_ranks), 0);
}

void StepLoop::admit(AcceptedRequest accepted) {
  auto made = std::make_unique<OpenRequest>();
  OpenRequest& request = *made;
  request.id = accepted.id;
  request.sink = std::make_shared<const EventSink>(std::move(accepted.sink));
  open_.emplace(accepted.id,
                std::move(made));  // first of all: should the rest fail, fail_all() still ends it
  request.draw = draw_state_of(accepted.request, accepted.seed, config_.eos_token_ids);
  scheduler_.add(sequence_of(accepted.id, accepted.request));
  if (accepted.waits_until != std::chrono::steady_clock::time_point::max())
    waits_until_.emplace(accepted.waits_until, accepted.id);
}

void StepLoop::expire(std::chrono::steady_clock::time_point now) {
  for (; !waits_until_.empty() && waits_until_.begin()->first <= now;
       waits_until_.erase(waits_until_.begin())) {
    const auto found = open_.find(waits_until_.begin()->second);
    if (found == open_.end() || scheduler_.sequence(found->first).num_from_cache >= 0) continue;
    finish(*found->second, FinishReason::kError,
           {.error = fmt::format("the request has waited for its start as long as --queue-timeout allows; {} "
                                 "requests run and {} others are open; try again later",
                                 scheduler_.num_running(),
                                 open_.size() - 1 - static_cast<size_t>(scheduler_.num_running())),
            .error_code = ErrorCode::kUnavailable});
  }
}

void StepLoop::cancel(RequestId id) {
  if (const auto found = open_.find(id); found != open_.end())
    finish(*found->second, FinishReason::kCancelled, {});
}

std::vector<RequestId> StepLoop::open_by_age() const {
  std::vector<RequestId> ids;
  ids.reserve(open_.size());
  for (const auto& [id, request] : open_) ids.push_back(id);
  std::ranges::sort(ids);
  return ids;
}

void StepLoop::cancel_all() {
  for (const RequestId id : open_by_age()) cancel(id);
}

void StepLoop::fail_all(const std::string& reason) {
  scheduler_.abandon();
  is_in_step_ = false;
  cancelled_in_step_.clear();
  for (const RequestId id : open_by_age()) {
    const std::unique_ptr<OpenRequest> owned = std::move(open_.extract(id).mapped());
    const OpenRequest& request = *owned;
    // One that had no row in a step can be asked for again: it was not what failed.
    ErrorCode code = ErrorCode::kInternal;
    try {
      if (scheduler_.sequence(request.id).num_from_cache < 0) code = ErrorCode::kUnavailable;
      scheduler_.remove(request.id);
    } catch (const std::exception& e) {  // the scheduler's books are what broke
      log_error("request {} was not removed: {}", request.id, e.what());
    }
    ++totals_.requests_failed;
    post(request.sink,
         {.id = request.id, .finish = FinishReason::kError, .error = reason, .error_code = code});
  }
}

void StepLoop::refuse(AcceptedRequest accepted, FinishReason finish, std::string error) {
  ++(finish == FinishReason::kError ? totals_.requests_failed : totals_.requests_cancelled);
  post(std::make_shared<const EventSink>(std::move(accepted.sink)), {.id = accepted.id,
                                                                     .finish = finish,
                                                                     .error = std::move(error),
                                                                     .error_code = ErrorCode::kUnavailable});
}

void StepLoop::step(const std::function<void()>& meanwhile) {
  std::optional<StepInput> input = scheduler_.next();
  LOCKSTEP_CHECK(input.has_value(), "no step was formed for {} open requests", open_.size());
  say_what_logits_are_for(*input);
  const StepDraws::FindState find_state = [this](RequestId id) -> const DrawState& {
    return open_.at(id)->draw;
  };
  StepDraws draws(*input, config_.vocabulary, find_state);
  const auto begin = std::chrono::steady_clock::now();
  is_in_step_ = true;
  executor_.run_beside(*input, [&draws](const LogitRow& row) { draws.take(row); }, meanwhile);
  is_in_step_ = false;
  draws.finish();
  scheduler_.commit();
  for (const RequestId id : std::exchange(cancelled_in_step_, {})) cancel(id);
  ++totals_.steps;
  totals_.last_step_rows.assign(input->plan.rows_per_home.begin(), input->plan.rows_per_home.end());
  for (size_t replica = 0; replica < input->replicas.size(); ++replica) {
    const std::vector<SequenceRows>& sequences = input->replicas[replica];
    for (size_t i = 0; i < sequences.size(); ++i) {
      scheduler_.fetch_ahead(static_cast<int32_t>(replica), sequences, i);
      commit(static_cast<int32_t>(replica), sequences[i],
             draws.results(static_cast<int32_t>(replica), static_cast<int32_t>(i)));
    }
  }
  if (config_.num_drafts > 0) make_drafts(*input);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  totals_.last_step_seconds = seconds.count();
  scheduler_.recycle(*std::move(input));
}

void StepLoop::say_what_logits_are_for(StepInput& input) const {
  input.num_valid_logits = config_.vocabulary.num_valid_tokens;
  for (std::vector<SequenceRows>& sequences : input.replicas)
    for (SequenceRows& rows : sequences)
      rows.use = rows.wanted == WantedLogits::kLast && needs_largest_only(open_.at(rows.id)->draw)
                     ? LogitUse::kLargest
                     : LogitUse::kAny;
}

void StepLoop::make_drafts(const StepInput& step) {
  DraftRound round(
      step, scheduler_, config_.vocabulary,
      [this](RequestId id) -> const DrawState& { return open_.at(id)->draw; }, config_.num_drafts);
  while (const std::optional<StepInput> input = round.next())
    executor_.run(*input, [&round](const LogitRow& row) { round.take(row); });
}

void StepLoop::commit(int32_t replica, const SequenceRows& rows, std::span<RowResult> results) {
  if (results.empty()) return;
  const auto found = open_.find(rows.id);
  if (found == open_.end()) return;  // it was cancelled while the step ran
  OpenRequest& request = *found->second;
  // Rows of drafts are looked at only where the drafts before them are accepted.
  const auto looked_at = rows.wanted == WantedLogits::kEach ? results.first(1) : results;
  const auto faulty =
      std::find_if(looked_at.begin(), looked_at.end(), [](const RowResult& r) { return !r.fault.empty(); });
  if (faulty != looked_at.end()) return finish(request, FinishReason::kError, {.error = faulty->fault});
  if (rows.wanted == WantedLogits::kAll) {
    take_scores(request, results);
    if (rows.context < request.draw.num_prompt) return;
  }
  Event event;
  if (!request.has_prompt_done) {
    request.has_prompt_done = true;
    totals_.prompt_tokens += static_cast<uint64_t>(request.draw.num_prompt);
    event.num_cached_tokens = scheduler_.sequence(request.id).num_from_cache;
    if (request.draw.prompt_top_logits > 0) event.prompt_scores = std::move(request.scores);
    event.prompt = std::move(request.prompt);
  }
  if (request.draw.max_new_tokens == 0) return finish(request, FinishReason::kLength, std::move(event));
  const bool is_each = rows.wanted == WantedLogits::kEach;
  take_tokens(request, {replica, rows}, is_each ? results : results.last(1), std::move(event));
}

void StepLoop::take_scores(OpenRequest& request, std::span<RowResult> results) {
  if (request.draw.prompt_logprobs >= 0) {
    if (request.prompt.empty()) request.prompt.push_back({.token_id = request.draw.scored_prompt[0]});
    for (RowResult& result : results)
      if (request.prompt.size() < request.draw.scored_prompt.size())
        request.prompt.push_back(std::move(result.prompt_token));
  }
  if (request.draw.prompt_top_logits == 0) return;
  for (RowResult& result : results) {
    std::vector<int32_t>& ids = request.scores.top_ids.emplace_back();
    std::vector<float>& logits = request.scores.top_logits.emplace_back();
    for (const Entry& entry : result.top) {
      ids.push_back(entry.idx);
      logits.push_back(entry.value);
    }
  }
  request.scores.last_logits = std::move(results.back().last_logits);
}

namespace {

// Why the output may not go on with the token; empty where it may. What a constraint throws is its request's
// own fault.
std::string complaint_of(const DrawState& draw, int32_t id) {
  if (!draw.constraint) return {};
  try {
    if (draw.constraint->accept(id)) return {};
  } catch (const std::exception& failure) {
    return fmt::format("the constraint of the output failed: {}", failure.what());
  }
  return fmt::format("the constraint of the output does not allow token {} as number {}", id,
                     draw.num_output);
}

}  // namespace

// The draw of the first row, and of each further one as long as the draft that it followed is what was drawn.
void StepLoop::take_tokens(OpenRequest& request, const Place& place, std::span<RowResult> results,
                           Event event) {
  const RequestId id = request.id;
  const bool verifies = results.size() > 1;
  if (verifies) {
    ++totals_.verifying_steps;
    totals_.drafted_tokens += results.size() - 1;
  }
  for (size_t row = 0; row < results.size(); ++row) {
    if (!results[row].fault.empty()) {
      event.error = std::move(results[row].fault);
      return finish(request, FinishReason::kError, std::move(event));
    }
    const int32_t token = results[row].token.token_id;
    if (take_token(request, place, std::move(results[row].token), event) == Goes::kEnded) return;
    if (row + 1 == results.size() || place.rows.token_ids[row + 1] != token) break;
    scheduler_.accept_draft(place.replica, place.rows);
    ++totals_.accepted_tokens;
  }
  event.id = id;
  post(request.sink, std::move(event));
}

StepLoop::Goes StepLoop::take_token(OpenRequest& request, const Place& place, OutputToken token,
                                    Event& event) {
  DrawState& draw = request.draw;
  const int32_t id = token.token_id;
  const auto end = [&](FinishReason reason, Event last) {
    finish(request, reason, std::move(last));
    return Goes::kEnded;
  };
  const bool is_ending =
      std::find(draw.ending_ids.begin(), draw.ending_ids.end(), id) != draw.ending_ids.end();
  if (const std::string complaint = complaint_of(draw, id); !complaint.empty())
    return end(FinishReason::kError, {.error = complaint});
  if (is_ending) {
    if (!draw.constraint) LOCKSTEP_CHECK_GE(draw.num_output, draw.min_new_tokens);  // barred until then
    event.stop_token_id = id;
    return end(FinishReason::kStop, std::move(event));
  }
  event.tokens.push_back(std::move(token));
  ++draw.num_output;
  ++totals_.output_tokens;
  if (uses_token_counts(draw.params)) draw.counts.add_output(id);
  const bool is_full = draw.num_prompt + draw.num_output >= config_.limits.max_sequence_tokens();
  if (is_full || draw.num_output >= draw.max_new_tokens) return end(FinishReason::kLength, std::move(event));
  scheduler_.append(place.replica, place.rows, id);
  return Goes::kOn;
}

void StepLoop::finish(OpenRequest& request, FinishReason reason, Event event) {
  event.id = request.id;
  event.finish = reason;
  if (reason == FinishReason::kError) {
    log_warning("request {} failed after {} tokens: {}", request.id, request.draw.num_output, event.error);
    ++totals_.requests_failed;
  } else {
    log_debug("request {} ended after {} tokens, reason {}", request.id, request.draw.num_output,
              static_cast<int>(reason));
    ++(reason == FinishReason::kCancelled ? totals_.requests_cancelled : totals_.requests_finished);
  }
  post(request.sink, std::move(event));
  const RequestId id = request.id;
  open_.erase(id);
  // What a request leaves that ended in a fault is not handed to the next one.
  scheduler_.remove(id, reason == FinishReason::kError ? Scheduler::Pages::kForget : Scheduler::Pages::kKeep);
}

void StepLoop::post(const std::shared_ptr<const EventSink>& sink, Event event) {
  outbox_.push_back({sink, std::move(event)});
}

void StepLoop::deliver() {
  while (!outbox_.empty()) {
    const Outgoing out = std::move(outbox_.front());
    outbox_.pop_front();  // before the call: nothing is delivered twice, whatever the call does
    const bool is_final = out.event.finish != FinishReason::kNotFinished;
    num_ended_ += is_final ? 1 : 0;
    std::string fault;
    try {
      (*out.sink)(out.event);
      continue;
    } catch (const std::exception& e) {
      fault = e.what();
    } catch (...) {
      fault = "an exception of unknown type";
    }
    log_error("the sink of request {} threw: {}{}", out.event.id, fault,
              is_final ? "" : "; the request is cancelled");
    if (is_final) continue;
    if (is_in_step_)
      cancelled_in_step_.push_back(out.event.id);
    else
      cancel(out.event.id);
  }
}

EngineStats StepLoop::stats() const {
  EngineStats stats = totals_;
  for (int replica = 0; replica < config_.limits.shape.num_replicas; ++replica)
    stats.replicas.push_back(scheduler_.replica_stats(replica));
  stats.preemptions = scheduler_.num_preemptions();
  stats.prefix_tokens_queried = scheduler_.prefix_counts().queried;
  stats.prefix_tokens_hit = scheduler_.prefix_counts().hit;
  return stats;
}

}  // namespace lockstep::runtime
