#pragma once
// Starts engines on checkpoints of the repository and runs requests to their end.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/runtime/start.h"
#include "tests/source_dir.h"

namespace lockstep::test {

inline std::string repository(const std::string& path) {
  return std::string(LOCKSTEP_SOURCE_DIR) + "/" + path;
}

inline Json read_json_file(const std::string& path) {
  const auto text = read_file(repository(path));
  if (!text) throw std::runtime_error(text.error().message);
  return parse_json(*text).value();
}

inline std::unique_ptr<runtime::Engine> start(runtime::EngineConfig config) {
  auto engine = runtime::start_engine(config);
  if (!engine) throw std::runtime_error(engine.error().message);
  return std::move(engine).value();
}

struct Outcome {
  std::vector<int32_t> ids;
  runtime::FinishReason finish = runtime::FinishReason::kNotFinished;
  std::optional<runtime::PromptScores> scores;
  std::string error;
  int num_final_events = 0;
};

// Requests that run until each has had its final event. What is not accepted ends as kError.
class Running {
 public:
  explicit Running(std::vector<runtime::Request> requests)
      : requests_(std::move(requests)), outcomes_(requests_.size()) {}

  void submit_all(runtime::Engine& engine) {
    // Whoever waits may be done with this once the last one has ended.
    for (size_t at = 0, num = requests_.size(); at < num; ++at) {
      const auto id =
          engine.submit(requests_[at], [this, at](const runtime::Event& event) { note(at, event); });
      if (!id)
        end(at,
            {.finish = runtime::FinishReason::kError, .error = id.error().message, .num_final_events = 1});
    }
  }
  std::vector<Outcome> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_done_ == requests_.size(); });
    return outcomes_;
  }

 private:
  void note(size_t at, const runtime::Event& event) {
    const std::lock_guard lock(mutex_);
    Outcome& outcome = outcomes_[at];
    for (const auto& token : event.tokens) outcome.ids.push_back(token.token_id);
    if (event.prompt_scores) outcome.scores = event.prompt_scores;
    if (event.finish == runtime::FinishReason::kNotFinished) return;
    outcome.finish = event.finish;
    outcome.error = event.error;
    ++outcome.num_final_events;
    ++num_done_;
    changed_.notify_all();
  }
  void end(size_t at, Outcome outcome) {
    const std::lock_guard lock(mutex_);
    outcomes_[at] = std::move(outcome);
    ++num_done_;
    changed_.notify_all();  // run_together() waits on another thread than the one that submits
  }

  const std::vector<runtime::Request> requests_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Outcome> outcomes_;
  size_t num_done_ = 0;
};

// Submits all at once and waits for the last final event.
inline std::vector<Outcome> run_all(runtime::Engine& engine, const std::vector<runtime::Request>& requests) {
  Running running(requests);
  running.submit_all(engine);
  return running.wait();
}

inline runtime::Request greedy(std::vector<int32_t> prompt, int max_new_tokens) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_new_tokens = max_new_tokens};
}

// Submits all from the engine's own thread, between two steps: they come into the same steps every time.
inline std::vector<Outcome> run_together(runtime::Engine& engine,
                                         const std::vector<runtime::Request>& requests) {
  Running running(requests);
  const auto id = engine.submit(greedy({5, 6, 7}, 1), [&](const runtime::Event& event) {
    if (event.finish != runtime::FinishReason::kNotFinished) running.submit_all(engine);
  });
  if (!id) throw std::runtime_error(id.error().message);
  return running.wait();
}

}  // namespace lockstep::test
