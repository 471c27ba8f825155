#pragma once
// Steps as a trace that Perfetto and chrome://tracing show: the engine's phases and, for every rank, each
// stage and each step of an edge. Chrome's JSON, written as it comes. Any thread.
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

class StepTrace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Overwrites the file. After `max_steps` steps it is complete and nothing more is written.
  static Result<std::shared_ptr<StepTrace>> open(const std::string& path, int max_steps);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // A phase on the engine's own thread: in a row of its own where a step's phases run on at the same time.
  enum class Row : uint8_t { kEngine, kBeside };
  void add(std::string_view phase, Time begin, Time end, Row row = Row::kEngine);
  // What the executor did for a step: its parts on the engine's thread, `ranks` each on a row of its own.
  void add_step(uint64_t step, Time begin, Time end, const StepTimes& times,
                const std::vector<std::vector<RankSpan>>& ranks);

 private:
  StepTrace(std::ofstream file, std::string path, int max_steps);
  void write(int thread, std::string_view name, std::string_view kind, Time begin, Time end,
             std::string_view args = {});
  void name_thread(int thread, const std::string& name);
  void close();

  std::mutex mutex_;  // of all below
  std::ofstream file_;
  const std::string path_;
  const Time start_ = std::chrono::steady_clock::now();
  int steps_left_;
  size_t ranks_named_ = 0;
  bool has_events_ = false;
};

}  // namespace lockstep::runtime
