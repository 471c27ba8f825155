#pragma once
// How often an engine may start again, within a window that goes with the time. The head's engine counts, and
// every other process of an engine takes over its count and goes on with it, so that nobody waits for who has
// given up. Not for several threads at a time.
#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lockstep/runtime/fault_policy.h"

namespace lockstep::runtime {

class RestartBudget {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RestartBudget(const FaultPolicy& faults)
      : most_(faults.max_restarts), window_(faults.restart_window) {}

  bool has_any(Clock::time_point now) const { return num_taken(now) < most_; }
  void take(Clock::time_point now) {
    while (!taken_.empty() && now - taken_.front() > window_) taken_.pop_front();
    taken_.push_back(now);
  }
  // Those within the window.
  int num_taken(Clock::time_point now) const {
    int num = 0;
    for (const Clock::time_point at : taken_) num += now - at <= window_ ? 1 : 0;
    return num;
  }

  // How long ago each was, in milliseconds: clocks of other processes show another time.
  std::vector<int64_t> ages(Clock::time_point now) const {
    std::vector<int64_t> ages;
    for (const Clock::time_point at : taken_)
      ages.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(now - at).count());
    return ages;
  }
  // In place of what was counted here.
  void take_over(std::span<const int64_t> ages, Clock::time_point now) {
    taken_.clear();
    for (const int64_t age : ages) taken_.push_back(now - std::chrono::milliseconds(age));
  }

 private:
  int most_;
  std::chrono::milliseconds window_;
  std::deque<Clock::time_point> taken_;  // the oldest first
};

}  // namespace lockstep::runtime
