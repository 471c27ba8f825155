// The overlapped loop beside the plain one.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lockstep/base/log.h"
#include "tests/runtime/engine_fixture.h"

namespace lockstep::runtime {
namespace {

// Computes on a thread of its own, as ranks do, and lets a test look at a step while it is computed.
class BesideExecutor final : public Executor {
 public:
  BesideExecutor(const SchedulerLimits& limits, int vocab) : inner(limits, vocab) {}
  void run(const StepInput& input, const LogitSink& sink) override { inner.run(input, sink); }
  void run_beside(const StepInput& input, const LogitSink& sink,
                  const std::function<void()>& meanwhile) override {
    std::exception_ptr failure;
    std::thread rank([&] {
      try {
        if (while_computing) while_computing(input);
        inner.run(input, sink);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    meanwhile();
    rank.join();
    if (failure) std::rethrow_exception(failure);
  }
  ScriptedExecutor inner;
  std::function<void(const StepInput&)> while_computing;
};

struct Beside {
  explicit Beside(Overlap overlap, const SchedulerLimits& limits = small_engine_limits())
      : model(scripted_model(kVocab, limits.context_length)) {
    auto made = std::make_unique<BesideExecutor>(limits, kVocab);
    executor = made.get();
    parts = {.model = model, .limits = limits, .executor = std::move(made), .overlap = overlap};
  }
  Engine& start() {
    engine = make_engine(std::move(parts));
    return *engine;
  }
  static constexpr int kVocab = 32;
  ModelInfo model;
  BesideExecutor* executor = nullptr;
  EngineParts parts;
  std::unique_ptr<Engine> engine;
};

bool becomes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Every step but the first waits until the token of the step before has been delivered.
// contract: engine.overlap
TEST(Overlap, TokensAreDeliveredWhileTheNextStepIsComputed) {
  Beside beside(Overlap::kOn);
  std::atomic<int> num_delivered = 0, num_late = 0;
  beside.executor->while_computing = [&](const StepInput& input) {
    const auto wanted = static_cast<int>(input.plan.step);  // one request: a token a step
    if (!becomes_true([&] { return num_delivered >= wanted; })) ++num_late;
  };
  Engine& engine = beside.start();
  Reply reply;
  ASSERT_TRUE(engine.submit(short_request(6), [&, sink = reply.sink()](const Event& event) {
    num_delivered += static_cast<int>(event.tokens.size());
    sink(event);
  }));
  EXPECT_EQ(reply.wait().tokens.size(), 6U);
  EXPECT_EQ(num_late, 0);
}

// contract: engine.overlap
TEST(Overlap, RequestsThatComeDuringAStepAreInTheNextOne) {
  Beside beside(Overlap::kOn);
  Reply first, second;
  std::vector<size_t> num_sequences;
  beside.executor->while_computing = [&](const StepInput& input) {
    num_sequences.push_back(input.replicas[0].size() + input.replicas[1].size());
    const bool is_good = num_sequences.size() != 2 || beside.engine->submit(short_request(2), second.sink());
    EXPECT_TRUE(is_good);
  };
  Engine& engine = beside.start();
  ASSERT_TRUE(engine.submit(short_request(5), first.sink()));
  first.wait();
  second.wait();
  EXPECT_EQ(num_sequences, (std::vector<size_t>{1, 1, 2, 2, 1}));
}

// contract: engine.overlap
TEST(Overlap, AnswersAreThoseOfThePlainLoop) {
  const SchedulerLimits limits = small_engine_limits();
  for (const Overlap overlap : {Overlap::kOff, Overlap::kOn}) {
    Beside beside(overlap, limits);
    Engine& engine = beside.start();
    std::vector<Reply> replies(60);
    std::vector<Request> requests;
    for (size_t i = 0; i < replies.size(); ++i) {
      Request request = short_request(1 + static_cast<int>(i % 9), 7 * i);
      request.prompt.resize(1 + i % 23, static_cast<int32_t>(i % 5));
      request.ignore_eos = i % 2 == 0;
      requests.push_back(request);
      ASSERT_TRUE(engine.submit(request, replies[i].sink()));
    }
    for (size_t i = 0; i < replies.size(); ++i) {
      SCOPED_TRACE(i);
      expect_as_unscheduled(replies[i].wait(), unscheduled(requests[i], 7 * i, beside.model, limits));
    }
    engine.drain(60);
    for (const ReplicaStats& replica : engine.stats().replicas) EXPECT_EQ(replica.pages_used, 0);
  }
}

// contract: sink.may-throw
TEST(Overlap, ASinkThatThrowsDuringAStepLosesItsRequestOnly) {
  set_log_level(LogLevel::kOff);
  Beside beside(Overlap::kOn);
  Engine& engine = beside.start();
  Reply good, bad;
  ASSERT_TRUE(engine.submit(long_request(), [&, sink = bad.sink()](const Event& event) {
    sink(event);
    if (event.finish == FinishReason::kNotFinished) throw std::runtime_error("the client broke");
  }));
  ASSERT_TRUE(engine.submit(short_request(20), good.sink()));
  EXPECT_EQ(bad.wait().finish, FinishReason::kCancelled);
  EXPECT_EQ(good.wait().finish, FinishReason::kLength);
  set_log_level(LogLevel::kInfo);
}

// What a step brought before the one that failed is told before the failure.
TEST(Overlap, AFailureComesAfterWhatWasDone) {
  set_log_level(LogLevel::kOff);
  Beside beside(Overlap::kOn);
  beside.executor->while_computing = [](const StepInput& input) {
    if (input.plan.step == 3) throw Fatal("rank 1 failed");
  };
  Engine& engine = beside.start();
  Reply reply;
  ASSERT_TRUE(engine.submit(long_request(), reply.sink()));
  const Outcome outcome = reply.wait();
  EXPECT_EQ(outcome.finish, FinishReason::kError);
  EXPECT_EQ(outcome.tokens.size(), 3U);
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace lockstep::runtime
