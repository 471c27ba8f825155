#pragma once
// The Engine over an Executor: one thread that admits, steps and delivers, and one that watches over it. What
// loads a model (start.h) calls make_engine(); nobody else includes this.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/runtime/engine.h"
#include "lockstep/runtime/fault_policy.h"
#include "lockstep/runtime/restart_budget.h"
#include "lockstep/runtime/scheduler/limits.h"
#include "lockstep/runtime/step.h"
#include "lockstep/runtime/step_trace.h"

namespace lockstep::runtime {

// kOn: while the ranks compute a step, the engine's thread delivers the events of the step before and takes
// in new requests. kOff: one after the other.
enum class Overlap : uint8_t { kOff, kOn };

// Another executor; the budget is what is left after this restart.
using MakeExecutor = std::function<Result<std::unique_ptr<Executor>>(const RestartBudget&)>;

struct EngineParts {
  ModelInfo model;  // its context_length is replaced by that of the limits, which is what this engine allows
  SchedulerLimits limits;  // check_limits() has passed
  int32_t num_drafts = 0;  // of a request and step, where the executor has something to draft with
  std::unique_ptr<Executor> executor;
  // Once the first has failed and is gone; none: the first failure is the end.
  MakeExecutor make_executor;
  std::string plan_text;
  Json plan_json;
  int num_valid_tokens = 0;  // ids at or above are in no tokenizer and never drawn; 0: all are valid
  Overlap overlap = Overlap::kOn;
  std::optional<std::chrono::duration<double>> queue_timeout;  // of a request's wait for its start
  FaultPolicy faults;
  std::shared_ptr<StepTrace> trace;  // what steps are written to; none: nothing
};

// Destroying the engine cancels what is open, once the step that runs has returned. One that does not return
// is interrupted after stop()'s usual patience and left behind.
std::unique_ptr<Engine> make_engine(EngineParts parts);

}  // namespace lockstep::runtime
