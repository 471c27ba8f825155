#pragma once
// An engine over the scripted executor, and replies that can be waited for.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "lockstep/runtime/engine_loop.h"
#include "tests/runtime/unscheduled.h"

namespace lockstep::runtime {

// What came for one request, from the engine thread to a test's thread. Copies share it.
class Reply {
 public:
  Reply() : shared_(std::make_shared<Shared>()) {}

  EventSink sink() const {
    return [shared = shared_](const Event& event) {
      const std::lock_guard lock(shared->mutex);
      shared->recorder(event);
      shared->changed.notify_all();
    };
  }

  // The whole reply; fails the test when it does not end.
  Outcome wait() const {
    wait_until([](const Outcome& outcome) { return outcome.finish != FinishReason::kNotFinished; });
    return now();
  }
  void wait_for_tokens(size_t count) const {
    wait_until([&](const Outcome& outcome) { return outcome.tokens.size() >= count; });
  }
  Outcome now() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->recorder.outcome();
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    Recorder recorder;
  };
  template <class Condition>
  void wait_until(Condition condition) const {
    std::unique_lock lock(shared_->mutex);
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(60);
    const bool came =
        shared_->changed.wait_until(lock, deadline, [&] { return condition(shared_->recorder.outcome()); });
    EXPECT_TRUE(came) << "no end within 60 s, " << shared_->recorder.outcome().tokens.size()
                      << " tokens came";
  }
  std::shared_ptr<Shared> shared_;
};

inline SchedulerLimits small_engine_limits() {
  SchedulerLimits limits;
  limits.shape.num_replicas = 2;
  limits.shape.ranks_per_replica = 2;
  limits.shape.capacity = {.max_requests = 4, .max_rows = 16, .max_decode_rows = 4, .max_logit_rows = 8};
  limits.max_running_requests = 6;
  limits.max_queued_requests = 1000;
  limits.chunked_prefill_size = 8;
  limits.page_size = 4;
  limits.pages_per_replica = 16;
  limits.context_length = 60;
  return limits;
}

struct ScriptedEngine {
  static constexpr int kVocab = 32;

  explicit ScriptedEngine(const SchedulerLimits& wanted = small_engine_limits(), int num_valid_tokens = 0)
      : limits(wanted), model(scripted_model(kVocab, wanted.context_length)) {
    auto made = std::make_unique<ScriptedExecutor>(limits, kVocab, RankThreads::kOneEach);
    executor = made.get();
    parts = EngineParts{.model = model,
                        .limits = limits,
                        .executor = std::move(made),
                        .plan_text = "the plan",
                        .plan_json = {{"plan", 1}},
                        .num_valid_tokens = num_valid_tokens};
  }
  // Hooks of the executor are set before this.
  Engine& start() {
    engine = make_engine(std::move(parts));
    return *engine;
  }

  SchedulerLimits limits;
  ModelInfo model;
  ScriptedExecutor* executor = nullptr;
  EngineParts parts;
  std::unique_ptr<Engine> engine;
};

// Never ends by itself before the context is full.
inline Request long_request(size_t prompt_length = 3) {
  Request request;
  request.prompt.assign(prompt_length, 1);
  request.max_new_tokens = 1000;
  request.ignore_eos = true;
  request.sampling.seed = 1;
  return request;
}

inline Request short_request(int max_new_tokens, uint64_t seed = 1) {
  Request request = long_request();
  request.max_new_tokens = max_new_tokens;
  request.sampling.seed = seed;
  return request;
}

}  // namespace lockstep::runtime
