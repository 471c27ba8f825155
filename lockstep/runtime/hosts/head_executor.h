#pragma once
// The executor of an engine whose ranks are spread over processes, in the process that has the engine: it
// sends every step to the others, runs its own ranks, and takes the logits that come back. start.cc makes it.
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/runtime/executor/rank_executor.h"
#include "lockstep/runtime/hosts/work_messages.h"
#include "lockstep/runtime/restart_budget.h"

namespace lockstep::runtime {

class HeadExecutor final : public Executor {
 public:
  struct Parts {
    std::shared_ptr<collectives::Links> links;
    planning::StepShape shape;
    int vocab = 0;
    std::chrono::milliseconds deadline{60000};  // of a process whose ranks are the last to run
  };
  explicit HeadExecutor(Parts parts) : parts_(std::move(parts)), box_(*parts_.links) {}

  // The ranks of this process, and those of all others once they have loaded too; that takes as long as it
  // takes. The error is the first failure of any.
  Status take_ranks(std::unique_ptr<LoadedRanks> ranks);
  // From now on a failure is one of an engine that has started, which the others may join again; until then
  // it is the start that failed.
  Status tell_started(const RestartBudget& restarts);
  void run(const StepInput& input, const LogitSink& sink) override { run_beside(input, sink, {}); }
  // Rows of others wait while `meanwhile` runs.
  void run_beside(const StepInput& input, const LogitSink& sink,
                  const std::function<void()>& meanwhile) override;
  std::string failure() const override;
  std::string interrupt(const std::string& why) override;
  // Of the ranks of this process.
  StepTimes last_times() const override { return ranks_->last_times(); }
  std::vector<std::vector<RankSpan>> take_spans() override { return ranks_->take_spans(); }

 private:
  void send(const StepInput& input);
  void await_all();
  bool is_awaiting() const;
  bool was_awaited(int process);  // and is no more
  void take_from_others(const StepInput& input, const LogitSink& sink);
  void take(WorkBox::Letter letter, const StepInput& input, const LogitSink& sink);
  std::string names_of_awaited() const;

  const Parts parts_;
  WorkBox box_;
  std::unique_ptr<LoadedRanks> ranks_;
  mutable std::mutex mutex_;
  std::set<int> awaited_;       // processes that have not run the step; guarded by mutex_
  std::set<int> awaited_rows_;  // and the rows whose logits have not come: replica * rows of a step + row
};

}  // namespace lockstep::runtime
