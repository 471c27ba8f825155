#pragma once
// The executor of a running engine, seen from outside: which step runs, since when, for which requests, and
// when all ranks last came to the end of one. The engine's thread runs steps through it, any thread may look.
// Private to the engine loop.
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

class StepWatch final : public Executor {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StepWatch(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {}

  void run(const StepInput& input, const LogitSink& sink) override {
    run_beside(input, sink, [] {});
  }
  void run_beside(const StepInput& input, const LogitSink& sink,
                  const std::function<void()>& meanwhile) override;
  std::string failure() const override { return executor_->failure(); }
  std::string interrupt(const std::string& why) override { return executor_->interrupt(why); }
  StepTimes last_times() const override { return executor_->last_times(); }
  std::vector<std::vector<RankSpan>> take_spans() override { return executor_->take_spans(); }

  // The engine's thread only. Where something drafts, the engine's step is several runs.
  struct Run {
    uint64_t step = 0;
    Clock::time_point begin, end;
    StepTimes times;
    std::vector<std::vector<RankSpan>> spans;
  };
  std::vector<Run> take_runs() { return std::exchange(runs_, {}); }  // that ended since the last call
  uint64_t num_runs() const { return num_runs_; }                    // that have begun

  struct Running {
    uint64_t step = 0;
    Clock::time_point since;
  };
  std::optional<Running> running() const;
  Clock::time_point last_end() const;       // of a step that all ranks finished; at first, when this was made
  std::vector<RequestId> last_ids() const;  // of the step that runs, or else the one before

 private:
  const std::unique_ptr<Executor> executor_;
  std::vector<Run> runs_;
  uint64_t num_runs_ = 0;
  mutable std::mutex mutex_;
  std::optional<Running> running_;  // guarded by mutex_, as is what follows
  std::vector<RequestId> ids_;
  Clock::time_point last_end_ = Clock::now();
};

}  // namespace lockstep::runtime
