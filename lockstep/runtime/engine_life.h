#pragma once
// One life of the engine: an executor, the step loop over it, and the thread that admits, steps and delivers.
// When it fails it ends its requests and its thread; the engine loop may then begin another. A life whose
// thread does not come back is left to itself: it finds an empty desk and harms nobody. Private to the engine
// loop.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/engine_loop.h"
#include "lockstep/runtime/open_requests.h"
#include "lockstep/runtime/step_loop.h"
#include "lockstep/runtime/step_trace.h"
#include "lockstep/runtime/step_watch.h"

namespace lockstep::runtime {

// What other threads leave for the engine's thread.
struct Mail {
  std::deque<AcceptedRequest> accepted;
  std::vector<RequestId> cancelled;
  bool cancel_all = false;
  bool clear_cache = false;
  bool stop = false;
  bool probe = false;  // run a step without rows, should there be nothing else to do
  bool empty() const {
    return accepted.empty() && cancelled.empty() && !cancel_all && !clear_cache && !stop && !probe;
  }
};

// What the engine's threads share; it outlives the engine for as long as a lost life holds it.
struct EngineDesk {
  explicit EngineDesk(int max_request_failures)
      : open(std::make_shared<OpenRequests>(max_request_failures)) {}

  const std::shared_ptr<OpenRequests> open;
  mutable std::mutex mutex;         // of all below; taken before that of `open`
  std::condition_variable wake;     // the engine's thread: there is mail
  std::condition_variable changed;  // the supervisor: a life is over, or the engine is to stop
  Mail mail;
  uint64_t life = 0;       // whose mail this is; an older life may touch nothing here
  bool accepting = false;  // submit() may add mail
  std::string refusal;     // why not
  EngineStats stats;       // of this life, as it published them last
};

struct EngineLifeConfig {
  StepLoopConfig steps;
  Overlap overlap = Overlap::kOn;
  std::shared_ptr<StepTrace> trace;  // none: steps are not traced
};

class EngineLife {
 public:
  // Fatal for limits that do not fit together.
  EngineLife(const EngineLifeConfig& config, std::unique_ptr<Executor> executor,
             std::shared_ptr<EngineDesk> desk, uint64_t number);

  void run() noexcept;  // the body of the engine's thread

  StepWatch& watch() { return watch_; }
  const EngineStats& first_stats() const { return first_stats_; }
  // With the desk's mutex held.
  bool is_over() const { return is_over_; }
  const std::string& failure() const { return failure_; }  // of a life that is over; empty: it was stopped

 private:
  void serve();
  std::optional<Mail> wait_for_mail();
  void admit();
  void admit_held();
  void cancel(RequestId id);
  void cancel_all();
  void probe();
  void step(std::chrono::steady_clock::time_point admitted_since);
  void take_in(AcceptedRequest accepted);
  std::vector<RequestId> who_was_running() const;
  void publish();
  void deliver(StepTrace::Row row);
  void admit_early();
  void fail(const std::string& reason) noexcept;
  void end(const std::string& failure);

  const std::shared_ptr<EngineDesk> desk_;
  const Overlap overlap_;
  const std::shared_ptr<StepTrace> trace_;
  const uint64_t number_;
  const planning::StepShape shape_;
  StepWatch watch_;
  StepLoop steps_;
  const EngineStats first_stats_;
  PhaseSeconds phases_;
  std::deque<AcceptedRequest> admitting_;  // out of the mailbox, not yet in steps_
  // Requests that one more failure would convict run one at a time, so that only the guilty one is blamed.
  std::deque<AcceptedRequest> held_;
  RequestId alone_ = 0;
  // What the thread is at, for the question of whose a failure is.
  RequestId taking_in_ = 0;              // 0: none
  std::optional<uint64_t> runs_before_;  // this step; none: it is in none

  bool is_over_ = false;  // guarded by the desk's mutex, as is failure_
  std::string failure_;
};

}  // namespace lockstep::runtime
