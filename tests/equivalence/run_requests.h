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

// Submits all at once and waits for the last final event. What is not accepted ends as kError.
inline std::vector<Outcome> run_all(runtime::Engine& engine, const std::vector<runtime::Request>& requests) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Outcome> outcomes(requests.size());
  size_t num_done = 0;
  for (size_t at = 0; at < requests.size(); ++at) {
    const auto id = engine.submit(requests[at], [&, at](const runtime::Event& event) {
      const std::lock_guard lock(mutex);
      Outcome& outcome = outcomes[at];
      for (const auto& token : event.tokens) outcome.ids.push_back(token.token_id);
      if (event.prompt_scores) outcome.scores = event.prompt_scores;
      if (event.finish == runtime::FinishReason::kNotFinished) return;
      outcome.finish = event.finish;
      outcome.error = event.error;
      ++outcome.num_final_events;
      ++num_done;
      changed.notify_all();
    });
    if (id) continue;
    const std::lock_guard lock(mutex);
    outcomes[at] = {
        .finish = runtime::FinishReason::kError, .error = id.error().message, .num_final_events = 1};
    ++num_done;
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_done == requests.size(); });
  return outcomes;
}

inline runtime::Request greedy(std::vector<int32_t> prompt, int max_new_tokens) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_new_tokens = max_new_tokens};
}

}  // namespace lockstep::test
