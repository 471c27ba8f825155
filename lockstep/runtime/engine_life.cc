#include "lockstep/runtime/engine_life.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::runtime {

EngineLife::EngineLife(const EngineLifeConfig& config, std::unique_ptr<Executor> executor,
                       std::shared_ptr<EngineDesk> desk, uint64_t number)
    : desk_(std::move(desk)),
      overlap_(config.overlap),
      trace_(config.trace),
      number_(number),
      shape_(config.steps.limits.shape),
      watch_(std::move(executor)),
      steps_(config.steps, watch_),
      first_stats_(steps_.stats()) {}

// One of the two places that catch a bug (the other is main): all requests learn of it.
void EngineLife::run() noexcept {
  try {
    serve();
    return end("");
  } catch (const std::exception& e) {
    fail(e.what());
  } catch (...) {
    fail("an exception of unknown type ended the engine thread");
  }
}

void EngineLife::serve() {
  for (;;) {
    std::optional<Mail> mail = wait_for_mail();
    if (!mail) return;
    const auto begin = StepWatch::Clock::now();
    if (mail->clear_cache) steps_.clear_cache();
    admitting_ = std::move(mail->accepted);
    admit();
    for (const RequestId id : mail->cancelled) cancel(id);
    if (mail->cancel_all || mail->stop) cancel_all();
    steps_.expire(StepWatch::Clock::now());
    if (!steps_.idle()) {
      step(begin);
    } else if (mail->probe) {
      probe();
    }
    publish();
    // What a step brings is told while the next one is computed, if there is a next one.
    if (overlap_ == Overlap::kOff || steps_.idle() || mail->stop) deliver(StepTrace::Row::kEngine);
    admit_held();
    if (mail->stop) return;
  }
}

// Requests that came since the step began: the next step finds them ready.
void EngineLife::admit_early() {
  {
    const std::lock_guard lock(desk_->mutex);
    if (desk_->life != number_) return;
    admitting_ = std::exchange(desk_->mail.accepted, {});
  }
  admit();
}

// A step with the times of its phases, of the model's forward and of those that draft: the executor knows its
// own parts, what lies around it is the step loop's.
void EngineLife::step(StepWatch::Clock::time_point admitted_since) {
  const auto begin = StepWatch::Clock::now();
  runs_before_ = watch_.num_runs();
  if (overlap_ == Overlap::kOn) {
    steps_.step([this] {
      deliver(StepTrace::Row::kBeside);
      admit_early();
    });
  } else {
    steps_.step();
  }
  runs_before_.reset();
  const auto end = StepWatch::Clock::now();
  const std::vector<StepWatch::Run> runs = watch_.take_runs();
  const auto between = [](StepWatch::Clock::time_point from, StepWatch::Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  phases_.admit += between(admitted_since, begin);
  phases_.schedule += between(begin, runs.front().begin);
  for (size_t at = 0; at < runs.size(); ++at) {
    const StepWatch::Run& run = runs[at];
    phases_.upload += run.times.upload;
    phases_.sample += run.times.sample;
    phases_.forward += std::max(0.0, between(run.begin, run.end) - run.times.upload - run.times.sample);
    phases_.commit += between(run.end, at + 1 < runs.size() ? runs[at + 1].begin : end);
  }
  if (!trace_) return;
  trace_->add("admit", admitted_since, begin);
  trace_->add("schedule", begin, runs.front().begin);
  for (size_t at = 0; at < runs.size(); ++at) {
    const StepWatch::Run& run = runs[at];
    trace_->add_step(run.step, run.begin, run.end, run.times, run.spans);
    trace_->add("commit", run.end, at + 1 < runs.size() ? runs[at + 1].begin : end);
  }
}

// Sleeps while there is neither mail nor work. Nothing where another life has begun meanwhile.
std::optional<Mail> EngineLife::wait_for_mail() {
  std::unique_lock lock(desk_->mutex);
  if (steps_.idle())
    desk_->wake.wait(lock, [this] { return !desk_->mail.empty() || desk_->life != number_; });
  if (desk_->life != number_) return std::nullopt;
  return std::exchange(desk_->mail, {});
}

void EngineLife::admit() {
  while (!admitting_.empty()) {
    AcceptedRequest accepted = std::move(admitting_.front());
    admitting_.pop_front();
    const Suspects& suspects = desk_->open->suspects();
    if (suspects.empty() || suspects.verdict(fingerprint_of(accepted.request)) == Suspects::Verdict::kFree) {
      take_in(std::move(accepted));
    } else {
      // What it waits for is not the queue, so the queue's timeout does not count.
      accepted.waits_until = StepWatch::Clock::time_point::max();
      held_.push_back(std::move(accepted));
    }
  }
  admit_held();
}

void EngineLife::admit_held() {
  if (held_.empty() || (alone_ != 0 && desk_->open->contains(alone_))) return;
  AcceptedRequest accepted = std::move(held_.front());
  held_.pop_front();
  alone_ = accepted.id;
  take_in(std::move(accepted));
}

void EngineLife::take_in(AcceptedRequest accepted) {
  taking_in_ = accepted.id;
  steps_.admit(std::move(accepted));
  taking_in_ = 0;
}

// Those to whom a failure may be due: the request that was taken in, or the rows of the step that ran. Nobody
// where the step was still being formed, or there was none.
std::vector<RequestId> EngineLife::who_was_running() const {
  if (taking_in_ != 0) return {taking_in_};
  const bool has_run = runs_before_ && watch_.num_runs() > *runs_before_;
  return has_run ? watch_.last_ids() : std::vector<RequestId>();
}

void EngineLife::cancel(RequestId id) {
  const auto held = std::find_if(held_.begin(), held_.end(), [id](const auto& one) { return one.id == id; });
  if (held == held_.end()) return steps_.cancel(id);
  AcceptedRequest accepted = std::move(*held);
  held_.erase(held);
  steps_.refuse(std::move(accepted), FinishReason::kCancelled, "");
}

void EngineLife::cancel_all() {
  while (!held_.empty()) cancel(held_.front().id);
  steps_.cancel_all();
}

// Every rank crosses every edge, without a row: it touches no cache, and answers whether they still can.
void EngineLife::probe() {
  StepInput input;
  input.replicas.resize(static_cast<size_t>(shape_.num_replicas));
  input.plan = planning::make_step_plan(
      0, shape_, std::vector<planning::ReplicaCounts>(static_cast<size_t>(shape_.num_replicas)));
  watch_.run(input, [](const LogitRow&) {});
  watch_.take_runs();  // nobody waits for it: its time is no step's, and a trace does not show it
}

void EngineLife::publish() {
  EngineStats stats = steps_.stats();
  stats.replicas.front().queued += static_cast<int>(held_.size());
  stats.phases = phases_;
  const std::lock_guard lock(desk_->mutex);
  if (desk_->life == number_) desk_->stats = std::move(stats);
}

// Statistics go first, so that whoever got a final event finds it counted.
void EngineLife::deliver(StepTrace::Row row) {
  const auto begin = StepWatch::Clock::now();
  publish();
  steps_.deliver();
  publish();
  const auto end = StepWatch::Clock::now();
  phases_.deliver += std::chrono::duration<double>(end - begin).count();
  if (trace_) trace_->add("deliver", begin, end, row);
}

void EngineLife::fail(const std::string& reason) noexcept {
  try {
    log_error("the engine failed: {}", reason);
    // Ranks, of other processes too, learn of what did not fail in one of them.
    if (watch_.failure().empty()) watch_.interrupt(reason);
    bool is_lost = true;  // then its requests have been ended and blamed already
    {
      const std::lock_guard lock(desk_->mutex);
      is_lost = desk_->life != number_;
      if (!is_lost) {
        desk_->accepting = false;
        desk_->refusal = fmt::format("the engine failed: {}", reason);
        for (AcceptedRequest& accepted : desk_->mail.accepted) admitting_.push_back(std::move(accepted));
        desk_->mail = {};
      }
    }
    if (!is_lost) desk_->open->blame(who_was_running());
    steps_.fail_all(reason);
    for (auto* waiting : {&admitting_, &held_})
      for (; !waiting->empty(); waiting->pop_front())
        steps_.refuse(std::move(waiting->front()), FinishReason::kError, reason);
    publish();
    deliver(StepTrace::Row::kEngine);
  } catch (const std::exception& e) {
    log_error("the engine could not tell its requests of its failure: {}", e.what());
  }
  end(reason);
}

void EngineLife::end(const std::string& failure) {
  const std::lock_guard lock(desk_->mutex);
  is_over_ = true;
  failure_ = failure;
  desk_->changed.notify_all();
}

}  // namespace lockstep::runtime
