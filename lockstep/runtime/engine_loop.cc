#include "lockstep/runtime/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/runtime/engine_life.h"
#include "lockstep/runtime/scheduler/request_check.h"

namespace lockstep::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};  // between two looks at the step that runs
constexpr double kStopPatience = 10;             // seconds that the destructor gives the last step

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

uint64_t fresh_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

std::chrono::steady_clock::time_point waits_until(std::optional<std::chrono::duration<double>> timeout) {
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
          .eos_token_ids = parts.model.eos_token_ids,
          .num_drafts = parts.num_drafts};
}

// What goes on from one life of the engine to the next.
void add_totals(EngineStats& to, const EngineStats& of) {
  to.steps += of.steps;
  to.prompt_tokens += of.prompt_tokens;
  to.output_tokens += of.output_tokens;
  to.requests_finished += of.requests_finished;
  to.requests_cancelled += of.requests_cancelled;
  to.requests_failed += of.requests_failed;
  to.preemptions += of.preemptions;
  to.prefix_tokens_queried += of.prefix_tokens_queried;
  to.prefix_tokens_hit += of.prefix_tokens_hit;
  to.verifying_steps += of.verifying_steps;
  to.drafted_tokens += of.drafted_tokens;
  to.accepted_tokens += of.accepted_tokens;
  for (const auto phase :
       {&PhaseSeconds::admit, &PhaseSeconds::schedule, &PhaseSeconds::upload, &PhaseSeconds::forward,
        &PhaseSeconds::sample, &PhaseSeconds::commit, &PhaseSeconds::deliver})
    to.phases.*phase += of.phases.*phase;
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
  bool stop(double seconds) override;

 private:
  using State = Health::State;
  using Lock = std::unique_lock<std::mutex>;

  void begin_life(std::shared_ptr<EngineLife> life);  // with the mutex, as all that take no Lock
  void set_state(State state, std::string reason);
  void supervise();
  void look_at_step(Lock& lock);
  void give_up_on_life(Lock& lock, const std::string& reason);
  void after_life(Lock& lock);
  void restart(Lock& lock, const std::string& failure);
  std::shared_ptr<EngineLife> another_life(Lock& lock, std::string& failure);

  const ModelInfo model_;
  const SchedulerLimits limits_;
  const std::optional<std::chrono::duration<double>> queue_timeout_;
  const EngineLifeConfig config_;
  const FaultPolicy faults_;
  const std::string plan_text_;
  const Json plan_json_;
  const MakeExecutor make_executor_;
  const std::shared_ptr<EngineDesk> desk_;

  // All below with the desk's mutex.
  State state_ = State::kServing;
  std::string reason_;  // why submit() refuses, when not serving
  std::shared_ptr<EngineLife> life_;
  std::thread thread_;        // that life's
  bool is_lost_ = false;      // the life's thread has not come back and is not waited for
  bool is_put_away_ = false;  // a life that failed, before another is tried
  bool is_draining_ = false, is_stopping_ = false;
  Clock::time_point stop_by_;
  RequestId next_id_ = 1;
  uint64_t num_accepted_ = 0;
  EngineStats before_;  // of the lives that are over
  uint64_t num_failures_ = 0, num_restarts_ = 0;
  RestartBudget restarts_{faults_};
  // The step that has failed or run too long, while its ranks are waited for.
  std::optional<Clock::time_point> trouble_since_;
  std::string trouble_;

  std::thread supervisor_;
};

EngineLoop::EngineLoop(EngineParts parts)
    : model_(with_context_length(parts.model, parts.limits.context_length)),
      limits_(parts.limits),
      queue_timeout_(parts.queue_timeout),
      config_({.steps = step_loop_config(parts), .overlap = parts.overlap, .trace = std::move(parts.trace)}),
      faults_(parts.faults),
      plan_text_(std::move(parts.plan_text)),
      plan_json_(std::move(parts.plan_json)),
      make_executor_(std::move(parts.make_executor)),
      desk_(std::make_shared<EngineDesk>(parts.faults.max_request_failures)) {
  auto life = std::make_shared<EngineLife>(config_, std::move(parts.executor), desk_, 1);
  {
    const std::lock_guard lock(desk_->mutex);
    begin_life(std::move(life));
  }
  supervisor_ = std::thread([this] { supervise(); });
}

EngineLoop::~EngineLoop() { stop(kStopPatience); }

// The life was made with the number that the desk has next.
void EngineLoop::begin_life(std::shared_ptr<EngineLife> life) {
  thread_ = std::thread([life] { life->run(); });  // first: it may fail, and it waits for the mutex
  ++desk_->life;
  desk_->mail = {};
  desk_->stats = life->first_stats();
  life_ = std::move(life);
  trouble_since_.reset();
  set_state(State::kServing, "");
}

void EngineLoop::set_state(State state, std::string reason) {
  state_ = state;
  reason_ = reason;
  desk_->accepting = state == State::kServing;
  desk_->refusal = std::move(reason);
}

Result<RequestId> EngineLoop::submit(Request request, EventSink sink) {
  if (!sink)
    return invalid_argument("sink", "a request of {} tokens came without a sink", request.prompt.size());
  if (Status status = check_request(request, model_, limits_); !status) return status.error();
  const uint64_t seed = request.sampling.seed ? *request.sampling.seed : fresh_seed();
  const uint64_t fingerprint = fingerprint_of(request);
  Suspects& suspects = desk_->open->suspects();
  if (suspects.verdict(fingerprint) == Suspects::Verdict::kRefused)
    return invalid_argument("prompt",
                            "a request with this prompt and these parameters was running in {} failures of "
                            "the engine and is not run again (--max-request-failures)",
                            suspects.num_failures(fingerprint));
  const auto max_open =
      static_cast<uint64_t>(limits_.max_running()) + static_cast<uint64_t>(limits_.max_queued_requests);
  RequestId id = 0;
  {
    const std::lock_guard lock(desk_->mutex);
    if (!desk_->accepting) return Error{ErrorCode::kUnavailable, desk_->refusal, ""};
    if (const uint64_t num_open = desk_->open->size(); num_open >= max_open)
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{} requests are open: {} may run and {} may wait; try again later", num_open,
                               limits_.max_running(), limits_.max_queued_requests),
                   ""};
    id = next_id_++;
    EventSink gate = desk_->open->add(id, std::move(sink), fingerprint, request.label);
    desk_->mail.accepted.push_back({.id = id,
                                    .request = std::move(request),
                                    .sink = std::move(gate),
                                    .seed = seed,
                                    .waits_until = waits_until(queue_timeout_)});
    ++num_accepted_;
  }
  desk_->wake.notify_one();
  return id;
}

void EngineLoop::cancel(RequestId id) {
  {
    const std::lock_guard lock(desk_->mutex);
    if (!desk_->open->contains(id)) return;
    desk_->mail.cancelled.push_back(id);
  }
  desk_->wake.notify_one();
}

void EngineLoop::clear_cache() {
  {
    const std::lock_guard lock(desk_->mutex);
    desk_->mail.clear_cache = true;
  }
  desk_->wake.notify_one();
}

EngineStats EngineLoop::stats() const {
  const std::lock_guard lock(desk_->mutex);
  EngineStats stats = desk_->stats;
  add_totals(stats, before_);
  stats.requests_accepted = num_accepted_;
  stats.failures = num_failures_;
  stats.restarts = num_restarts_;
  stats.page_size = limits_.page_size;
  return stats;
}

// An engine with nothing to do is asked for a step without rows, whose end the next call sees.
Health EngineLoop::health() const {
  const std::lock_guard lock(desk_->mutex);
  // A life that has just failed says so on the desk, before the supervisor has come to it.
  const bool has_failed = state_ == State::kServing && !desk_->accepting;
  Health health{.serving = state_ == State::kServing && !has_failed,
                .reason = has_failed ? desk_->refusal : reason_,
                .state = is_put_away_ && state_ == State::kFailed ? State::kRestarting
                         : !has_failed                            ? state_
                         : make_executor_                         ? State::kRestarting
                                                                  : State::kFailed,
                .failures = num_failures_,
                .restarts = num_restarts_};
  if (life_ == nullptr) return health;
  const auto now = Clock::now();
  health.seconds_since_step = seconds(now - life_->watch().last_end());
  if (const auto running = life_->watch().running()) {
    health.step_seconds = seconds(now - running->since);
    if (health.serving && now - running->since > faults_.step_timeout) {
      health.serving = false;
      health.reason = fmt::format("engine step {} has run for {:.1f} s", running->step, health.step_seconds);
    }
  } else if (health.serving && faults_.probe_after.count() > 0 &&
             now - life_->watch().last_end() > faults_.probe_after) {
    desk_->mail.probe = true;
    desk_->wake.notify_one();
  }
  return health;
}

void EngineLoop::drain(double patience) {
  constexpr double kLongest = 1e8;  // three years, which every clock can add
  patience = patience > 0 ? std::min(patience, kLongest) : 0;
  {
    const std::lock_guard lock(desk_->mutex);
    is_draining_ = true;
    // One that has just failed says why, and is not started again.
    if (desk_->accepting || state_ == State::kRestarting)
      set_state(State::kDraining,
                fmt::format("the engine is draining {} requests and takes no new ones", desk_->open->size()));
    desk_->changed.notify_all();
  }
  if (desk_->open->wait_until_empty(patience)) return;
  log_warning("{} requests are still open after draining for {} s and are cancelled", desk_->open->size(),
              patience);
  {
    const std::lock_guard lock(desk_->mutex);
    desk_->mail.cancel_all = true;
  }
  desk_->wake.notify_one();
  desk_->open->wait_until_empty({});  // a step that never ends is given up by the supervisor
}

bool EngineLoop::stop(double patience) {
  {
    const std::lock_guard lock(desk_->mutex);
    if (!is_stopping_) {
      is_stopping_ = true;
      stop_by_ = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(patience * 1000));
      desk_->mail.stop = true;
      if (state_ != State::kFailed)
        set_state(State::kStopping,
                  fmt::format("the engine is shutting down with {} requests open", desk_->open->size()));
    }
  }
  desk_->wake.notify_all();
  desk_->changed.notify_all();
  if (supervisor_.joinable()) supervisor_.join();
  return !is_lost_;
}

// The supervisor's thread: ends with the engine, once the life that runs is over or given up.
void EngineLoop::supervise() {
  Lock lock(desk_->mutex);
  for (;;) {
    desk_->changed.wait_for(lock, kTick, [this] { return life_ != nullptr && life_->is_over(); });
    if (life_ != nullptr && life_->is_over()) {
      after_life(lock);
    } else if (life_ != nullptr && !is_lost_) {
      look_at_step(lock);
    }
    if (is_stopping_ && (life_ == nullptr || is_lost_)) break;
  }
  if (thread_.joinable()) thread_.detach();
}

// Ranks that can be reached are told to stop; after a moment nobody waits for the others.
void EngineLoop::look_at_step(Lock& lock) {
  const auto now = Clock::now();
  if (trouble_since_) {
    if (now - *trouble_since_ > faults_.grace) give_up_on_life(lock, trouble_);
    return;
  }
  const std::shared_ptr<EngineLife> life = life_;
  const auto running = life->watch().running();
  if (!running) {
    // A process that died while nothing ran: a step without rows brings out what is wrong.
    if (!is_stopping_ && !life->watch().failure().empty()) {
      desk_->mail.probe = true;
      desk_->wake.notify_one();
    }
    if (is_stopping_ && now > stop_by_ + faults_.grace)
      give_up_on_life(lock, "the engine's thread did not end when it was told to");
    return;
  }
  std::string why = life->watch().failure();
  if (why.empty() && now - running->since > faults_.step_timeout)
    why = fmt::format("engine step {} has run for {:.1f} s, longer than --step-timeout {:g}", running->step,
                      seconds(now - running->since), seconds(faults_.step_timeout));
  if (why.empty() && is_stopping_ && now > stop_by_)
    why = fmt::format("engine step {} ran for {:.1f} s when the engine was to shut down", running->step,
                      seconds(now - running->since));
  if (why.empty()) return;
  lock.unlock();
  std::string what = life->watch().interrupt(why);
  lock.lock();
  trouble_since_ = now;
  trouble_ = std::move(what);
}

// The life's thread is inside of a step that does not end: its requests are ended from here.
void EngineLoop::give_up_on_life(Lock& lock, const std::string& reason) {
  const std::string told = fmt::format("{}; not all ranks have come back", reason);
  log_error("the engine failed: {}", told);
  is_lost_ = true;
  ++num_failures_;
  ++desk_->life;
  desk_->mail = {};
  if (state_ == State::kServing) set_state(State::kFailed, fmt::format("the engine failed: {}", told));
  // Counted before they are told. That life can publish nothing any more, whoever of it still ends some.
  desk_->stats.requests_failed += desk_->open->size();
  for (ReplicaStats& replica : desk_->stats.replicas)
    replica.running = replica.queued = 0, replica.pages_used = replica.slots_used = 0;
  const std::vector<RequestId> ids = life_->watch().last_ids();
  lock.unlock();
  desk_->open->blame(ids);
  desk_->open->end_all(told, ids);
  lock.lock();
  desk_->wake.notify_all();
}

void EngineLoop::after_life(Lock& lock) {
  const std::string failure = is_lost_ ? trouble_ : life_->failure();
  if (is_lost_) log_warning("the step that was given up has come to its end");
  if (!is_lost_ && !failure.empty()) {
    ++num_failures_;
    if (state_ == State::kServing) set_state(State::kFailed, fmt::format("the engine failed: {}", failure));
  }
  is_lost_ = false;
  std::shared_ptr<EngineLife> life = std::exchange(life_, nullptr);
  std::thread thread = std::move(thread_);
  add_totals(before_, desk_->stats);
  desk_->stats = life->first_stats();
  is_put_away_ = !failure.empty() && make_executor_ && !is_draining_ && !is_stopping_;
  lock.unlock();
  thread.join();
  life.reset();  // its memory goes before another life takes some
  lock.lock();
  is_put_away_ = false;
  if (!failure.empty() && !is_stopping_) restart(lock, failure);
}

// Another executor, after a while; as often as the window allows. Not for an engine that drains or stops.
void EngineLoop::restart(Lock& lock, const std::string& failure) {
  std::string reason = failure;
  auto backoff = faults_.first_backoff;
  while (make_executor_ && !is_draining_ && !is_stopping_ && state_ == State::kFailed) {
    const auto now = Clock::now();
    if (!restarts_.has_any(now)) {
      set_state(State::kFailed,
                fmt::format("the engine failed and is not started again after {} restarts within {:g} s "
                            "(--max-engine-restarts): {}",
                            restarts_.num_taken(now), seconds(faults_.restart_window), reason));
      log_error("{}", reason_);
      return;
    }
    restarts_.take(now);
    set_state(State::kRestarting,
              fmt::format("the engine failed: {}; restart {} of {} begins in {:g} s", reason,
                          restarts_.num_taken(now), faults_.max_restarts, seconds(backoff)));
    log_warning("{}", reason_);
    desk_->changed.wait_for(lock, backoff, [this] { return is_stopping_ || state_ != State::kRestarting; });
    if (is_stopping_ || state_ != State::kRestarting) return;
    backoff = std::min(2 * backoff, faults_.longest_backoff);
    std::shared_ptr<EngineLife> life = another_life(lock, reason);
    if (is_lost_) return;
    if (life != nullptr && !is_stopping_ && state_ == State::kRestarting) {
      try {
        begin_life(life);
        ++num_restarts_;
        log_info("the engine serves again, after {:.2f} s", seconds(Clock::now() - now));
        return;
      } catch (const std::system_error& e) {
        reason = fmt::format("no thread for the engine: {}", e.what());
      }
    }
    lock.unlock();
    life.reset();  // takes a while
    lock.lock();
    if (state_ == State::kRestarting) set_state(State::kFailed, reason);
  }
}

// Null where none can be had; `failure` then says why. Made on a thread of its own, for ranks may hang in
// their warm-up as in any step: then the engine is lost. Only the supervisor begins lives.
std::shared_ptr<EngineLife> EngineLoop::another_life(Lock& lock, std::string& failure) {
  struct Build {  // with the desk's mutex
    bool is_done = false;
    std::shared_ptr<EngineLife> life;
    std::string failure;
  };
  const auto build = std::make_shared<Build>();
  const auto begin = Clock::now();
  const auto make_life = [build, make = make_executor_, budget = restarts_, config = config_, desk = desk_,
                          number = desk_->life + 1] {
    std::shared_ptr<EngineLife> life;
    std::string why;
    try {
      auto executor = make(budget);
      if (executor) life = std::make_shared<EngineLife>(config, std::move(*executor), desk, number);
      if (!executor) why = executor.error().message;
    } catch (const std::exception& e) {
      why = e.what();
    }
    const std::lock_guard guard(desk->mutex);
    build->life = std::move(life);
    build->failure = std::move(why);
    build->is_done = true;
    desk->changed.notify_all();
  };
  std::thread builder;
  try {
    builder = std::thread(make_life);
  } catch (const std::system_error& e) {
    failure = fmt::format("no thread to start the engine again: {}", e.what());
    return nullptr;
  }
  while (!build->is_done) {
    desk_->changed.wait_for(lock, kTick, [&] { return build->is_done; });
    const auto now = Clock::now();
    const bool is_late = now - begin > faults_.restart_timeout || (is_stopping_ && now > stop_by_);
    if (build->is_done || !is_late) continue;
    builder.detach();
    is_lost_ = true;
    if (state_ == State::kRestarting)
      set_state(State::kFailed,
                fmt::format("the engine failed: {}; its restart has not ended within {:.1f} s", failure,
                            seconds(now - begin)));
    log_error("a restart of the engine is given up after {:.1f} s", seconds(now - begin));
    return nullptr;
  }
  lock.unlock();
  builder.join();
  lock.lock();
  if (build->life == nullptr) {
    failure = build->failure;
    log_error("the engine could not be started again: {}", failure);
  }
  return std::move(build->life);
}

}  // namespace

std::unique_ptr<Engine> make_engine(EngineParts parts) {
  LOCKSTEP_CHECK(parts.executor != nullptr, "an engine for {} has no executor", parts.model.name);
  LOCKSTEP_CHECK_LE(1, parts.model.vocab);
  LOCKSTEP_CHECK_LE(parts.num_valid_tokens, parts.model.vocab);
  return std::make_unique<EngineLoop>(std::move(parts));
}

}  // namespace lockstep::runtime
