#include "lockstep/runtime/step_watch.h"

namespace lockstep::runtime {

void StepWatch::run_beside(const StepInput& input, const LogitSink& sink,
                           const std::function<void()>& meanwhile) {
  ++num_runs_;
  const auto begin = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    ids_.clear();
    for (const auto& sequences : input.replicas)
      for (const SequenceRows& rows : sequences) ids_.push_back(rows.id);
    running_ = Running{input.plan.step, Clock::now()};
  }
  struct Ended {
    StepWatch& of;
    bool is_whole = false;
    ~Ended() {
      const std::lock_guard lock(of.mutex_);
      of.running_.reset();
      if (is_whole) of.last_end_ = Clock::now();
    }
  } ended{*this};
  executor_->run_beside(input, sink, meanwhile);
  const auto end = Clock::now();
  runs_.push_back({input.plan.step, begin, end, executor_->last_times(), executor_->take_spans()});
  ended.is_whole = true;
}

std::optional<StepWatch::Running> StepWatch::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

StepWatch::Clock::time_point StepWatch::last_end() const {
  const std::lock_guard lock(mutex_);
  return last_end_;
}

std::vector<RequestId> StepWatch::last_ids() const {
  const std::lock_guard lock(mutex_);
  return ids_;
}

}  // namespace lockstep::runtime
