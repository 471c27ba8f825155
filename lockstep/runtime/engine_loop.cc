#include "lockstep/runtime/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/runtime/scheduler/request_check.h"
#include "lockstep/runtime/step_loop.h"

namespace lockstep::runtime {
namespace {

uint64_t fresh_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

std::chrono::steady_clock::time_point waits_until(std::optional<std::chrono::duration<double>> timeout) {
  using Clock = std::chrono::steady_clock;
  if (!timeout) return Clock::time_point::max();
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(*timeout);
}

ModelInfo with_context_length(ModelInfo model, int context_length) {
  model.context_length = context_length;
  return model;
}

StepLoopConfig step_loop_config(const EngineParts& parts) {
  return {.limits = parts.limits,
          .vocabulary = {.num_logits = parts.model.vocab, .num_valid_tokens = parts.num_valid_tokens},
          .eos_token_ids = parts.model.eos_token_ids};
}

class EngineLoop final : public Engine {
 public:
  explicit EngineLoop(EngineParts parts);
  ~EngineLoop() override;
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  Result<RequestId> submit(Request request, EventSink sink) override;
  void cancel(RequestId id) override;
  void clear_cache() override;
  const ModelInfo& model() const override { return model_; }
  EngineStats stats() const override;
  Health health() const override;
  std::string plan_text() const override { return plan_text_; }
  Json plan_json() const override { return plan_json_; }
  void drain(double seconds) override;

 private:
  enum class State : uint8_t { kServing, kDraining, kFailed, kStopping };
  // What other threads left for the engine thread.
  struct Mail {
    std::deque<AcceptedRequest> accepted;
    std::vector<RequestId> cancelled;
    bool cancel_all = false;
    bool clear_cache = false;
    bool stop = false;
    bool empty() const {
      return accepted.empty() && cancelled.empty() && !cancel_all && !clear_cache && !stop;
    }
  };

  void run() noexcept;
  void serve();
  Mail wait_for_mail();
  void step_plain();
  void step_overlapped();
  void admit();
  void admit_early();
  void publish();
  void deliver();
  void fail(const std::string& reason) noexcept;
  uint64_t num_open() const { return num_accepted_ - num_ended_; }  // with the mutex

  const ModelInfo model_;
  const SchedulerLimits limits_;
  const std::optional<std::chrono::duration<double>> queue_timeout_;
  const Overlap overlap_;
  const std::string plan_text_;
  const Json plan_json_;
  const std::unique_ptr<Executor> executor_;
  StepLoop steps_;                         // the engine thread's
  std::deque<AcceptedRequest> admitting_;  // the engine thread's: out of the mailbox, not yet in steps_

  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_, ended_;
  Mail mail_;
  State state_ = State::kServing;
  std::string reason_;  // why submit() refuses, when not serving
  RequestId next_id_ = 1;
  uint64_t num_accepted_ = 0, num_ended_ = 0;
  EngineStats stats_;

  std::thread thread_;
};

EngineLoop::EngineLoop(EngineParts parts)
    : model_(with_context_length(parts.model, parts.limits.context_length)),
      limits_(parts.limits),
      queue_timeout_(parts.queue_timeout),
      overlap_(parts.overlap),
      plan_text_(std::move(parts.plan_text)),
      plan_json_(std::move(parts.plan_json)),
      executor_(std::move(parts.executor)),
      steps_(step_loop_config(parts), *executor_),
      stats_(steps_.stats()) {
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    mail_.stop = true;
    if (state_ != State::kFailed) {
      state_ = State::kStopping;
      reason_ = fmt::format("the engine is shutting down with {} requests open", num_open());
    }
  }
  wake_.notify_all();
  thread_.join();
}

Result<RequestId> EngineLoop::submit(Request request, EventSink sink) {
  if (!sink)
    return invalid_argument("sink", "a request of {} tokens came without a sink", request.prompt.size());
  if (Status status = check_request(request, model_, limits_); !status) return status.error();
  const uint64_t seed = request.sampling.seed ? *request.sampling.seed : fresh_seed();
  const auto max_open =
      static_cast<uint64_t>(limits_.max_running()) + static_cast<uint64_t>(limits_.max_queued_requests);
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kServing) return Error{ErrorCode::kUnavailable, reason_, ""};
    if (num_open() >= max_open)
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{} requests are open: {} may run and {} may wait; try again later",
                               num_open(), limits_.max_running(), limits_.max_queued_requests),
                   ""};
    id = next_id_;
    mail_.accepted.push_back({id, std::move(request), std::move(sink), seed, waits_until(queue_timeout_)});
    ++next_id_;
    ++num_accepted_;
  }
  wake_.notify_one();
  return id;
}

void EngineLoop::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (id == 0 || id >= next_id_ || num_open() == 0) return;
    mail_.cancelled.push_back(id);
  }
  wake_.notify_one();
}

void EngineLoop::clear_cache() {
  {
    const std::lock_guard lock(mutex_);
    mail_.clear_cache = true;
  }
  wake_.notify_one();
}

EngineStats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.requests_accepted = num_accepted_;
  return stats;
}

Health EngineLoop::health() const {
  const std::lock_guard lock(mutex_);
  return {.serving = state_ == State::kServing, .reason = reason_};
}

void EngineLoop::drain(double seconds) {
  constexpr double kLongest = 1e8;  // three years, which every clock can add
  const std::chrono::duration<double> patience(seconds > 0 ? std::min(seconds, kLongest) : 0);
  std::unique_lock lock(mutex_);
  if (state_ == State::kServing) {
    state_ = State::kDraining;
    reason_ = fmt::format("the engine is draining {} requests and takes no new ones", num_open());
  }
  if (ended_.wait_for(lock, patience, [this] { return num_open() == 0; })) return;
  log_warning("{} requests are still open after draining for {} s and are cancelled", num_open(),
              patience.count());
  mail_.cancel_all = true;
  wake_.notify_one();
  ended_.wait(lock, [this] { return num_open() == 0; });
}

// One of the two places that catch a bug (the other is main): all requests learn of it, and nothing is served
// any more.
void EngineLoop::run() noexcept {
  try {
    serve();
  } catch (const std::exception& e) {
    fail(e.what());
  } catch (...) {
    fail("an exception of unknown type ended the engine thread");
  }
}

void EngineLoop::serve() {
  for (;;) {
    Mail mail = wait_for_mail();
    if (mail.clear_cache) steps_.clear_cache();
    admitting_ = std::move(mail.accepted);
    admit();
    for (const RequestId id : mail.cancelled) steps_.cancel(id);
    if (mail.cancel_all || mail.stop) steps_.cancel_all();
    steps_.expire(std::chrono::steady_clock::now());
    if (overlap_ == Overlap::kOn)
      step_overlapped();
    else
      step_plain();
    if (mail.stop) return deliver();
  }
}

void EngineLoop::step_plain() {
  if (!steps_.idle()) steps_.step();
  publish();
  deliver();
}

// What a step brings is told while the next one is computed, if there is a next one.
void EngineLoop::step_overlapped() {
  if (!steps_.idle())
    steps_.step([this] {
      deliver();
      admit_early();
    });
  publish();
  if (steps_.idle()) deliver();
}

// Requests that came since the step began: the next step finds them ready.
void EngineLoop::admit_early() {
  {
    const std::lock_guard lock(mutex_);
    admitting_ = std::exchange(mail_.accepted, {});
  }
  admit();
}

// Sleeps while there is neither mail nor work.
EngineLoop::Mail EngineLoop::wait_for_mail() {
  std::unique_lock lock(mutex_);
  if (steps_.idle()) wake_.wait(lock, [this] { return !mail_.empty(); });
  return std::exchange(mail_, {});
}

void EngineLoop::admit() {
  while (!admitting_.empty()) {
    AcceptedRequest accepted = std::move(admitting_.front());
    admitting_.pop_front();
    steps_.admit(std::move(accepted));
  }
}

void EngineLoop::publish() {
  EngineStats stats = steps_.stats();
  const std::lock_guard lock(mutex_);
  stats_ = std::move(stats);
}

// Statistics go first, so that whoever got a final event finds it counted.
void EngineLoop::deliver() {
  steps_.deliver();
  publish();
  {
    const std::lock_guard lock(mutex_);
    num_ended_ = steps_.num_ended();
  }
  ended_.notify_all();
}

void EngineLoop::fail(const std::string& reason) noexcept {
  try {
    log_error("the engine failed: {}", reason);
    {
      const std::lock_guard lock(mutex_);
      state_ = State::kFailed;
      reason_ = fmt::format("the engine failed: {}", reason);
      for (AcceptedRequest& accepted : mail_.accepted) admitting_.push_back(std::move(accepted));
      mail_ = {};
    }
    steps_.fail_all(reason);
    for (AcceptedRequest& accepted : admitting_)
      steps_.refuse(std::move(accepted), FinishReason::kError, reason);
    admitting_.clear();
    publish();
    deliver();
  } catch (const std::exception& e) {
    log_error("the engine could not tell its requests of its failure: {}", e.what());
  }
}

}  // namespace

std::unique_ptr<Engine> make_engine(EngineParts parts) {
  LOCKSTEP_CHECK(parts.executor != nullptr, "an engine for {} has no executor", parts.model.name);
  LOCKSTEP_CHECK_LE(1, parts.model.vocab);
  LOCKSTEP_CHECK_LE(parts.num_valid_tokens, parts.model.vocab);
  return std::make_unique<EngineLoop>(std::move(parts));
}

}  // namespace lockstep::runtime
