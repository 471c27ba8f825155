// Many threads against one engine: whatever they do at the same time, each accepted request ends once and
// says what it says alone. Meant to be run under the thread sanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "tests/runtime/engine_fixture.h"

namespace lockstep::runtime {
namespace {

struct Submission {
  Request request;
  Reply reply;
};

// What the threads of a test share.
struct Crowd {
  explicit Crowd(Engine& crowded) : engine(crowded) {}

  Engine& engine;
  std::mutex mutex;
  std::vector<Submission> accepted;
  std::atomic<uint64_t> last_id = 0;
  std::atomic<uint64_t> num_refused = 0;
  std::atomic<bool> is_over = false;

  void submit(uint64_t seed, int count) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < count; ++i) {
      Request request = short_request(static_cast<int>(random() % 25), random());
      request.prompt.assign(1 + random() % 20, static_cast<int32_t>(random() % ScriptedEngine::kVocab));
      if (random() % 3 == 0) request.sampling.temperature = 0;
      if (random() % 3 == 0) request.sampling.frequency_penalty = 0.5f;
      if (random() % 4 == 0) request.prompt_top_logits = 2;
      if (random() % 4 == 0) request.replica = static_cast<int>(random() % 2);
      Reply reply;
      const Result<RequestId> id = engine.submit(request, reply.sink());
      if (!id) {
        EXPECT_EQ(id.error().code, ErrorCode::kUnavailable) << id.error().message;
        ++num_refused;
        continue;
      }
      last_id = *id;
      const std::lock_guard lock(mutex);
      accepted.push_back({request, reply});
    }
  }
  void cancel(uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!is_over) {
      engine.cancel(random() % (last_id + 2));
      std::this_thread::yield();
    }
  }
  void watch() {
    uint64_t steps = 0;
    while (!is_over) {
      const EngineStats stats = engine.stats();
      const uint64_t ended = stats.requests_finished + stats.requests_cancelled + stats.requests_failed;
      uint64_t open = 0;
      for (const ReplicaStats& replica : stats.replicas) {
        open += static_cast<uint64_t>(replica.running + replica.queued);
        EXPECT_LE(replica.pages_used, replica.pages_total);
      }
      EXPECT_LE(ended + open, stats.requests_accepted);
      EXPECT_GE(stats.steps, steps);
      steps = stats.steps;
      (void)engine.health();
      std::this_thread::yield();
    }
  }
};

void expect_all_ended(Crowd& crowd, const ScriptedEngine& scripted) {
  for (const Submission& submission : crowd.accepted) {
    const Outcome outcome = submission.reply.wait();
    if (outcome.finish == FinishReason::kError) continue;  // only where the test makes the engine fail
    expect_as_unscheduled(outcome, unscheduled(submission.request, *submission.request.sampling.seed,
                                               scripted.model, scripted.limits));
  }
}

// contract: request.one-final-event
// contract: request.text-alone
TEST(EngineConcurrency, SubmittersCancellersAndWatchers) {
  SchedulerLimits limits = small_engine_limits();
  limits.pages_per_replica = 15;  // the longest sequence fills it, so there is preemption
  ScriptedEngine scripted(limits);
  Crowd crowd(scripted.start());
  std::vector<std::thread> submitters, others;
  for (uint64_t i = 0; i < 8; ++i) submitters.emplace_back([&, i] { crowd.submit(i, 40); });
  others.emplace_back([&] { crowd.cancel(100); });
  others.emplace_back([&] { crowd.watch(); });
  for (std::thread& thread : submitters) thread.join();
  for (const Submission& submission : crowd.accepted) submission.reply.wait();
  crowd.is_over = true;
  for (std::thread& thread : others) thread.join();
  expect_all_ended(crowd, scripted);
  crowd.engine.drain(10);
  const EngineStats stats = crowd.engine.stats();
  EXPECT_EQ(crowd.accepted.size(), 320U);
  EXPECT_EQ(stats.requests_accepted, 320U);
  EXPECT_EQ(stats.requests_finished + stats.requests_cancelled, 320U);
  for (const ReplicaStats& replica : stats.replicas) EXPECT_EQ(replica.pages_used, 0);
}

TEST(EngineConcurrency, AShortQueueUnderPressure) {
  SchedulerLimits limits = small_engine_limits();
  limits.max_queued_requests = 4;
  ScriptedEngine scripted(limits);
  Crowd crowd(scripted.start());
  std::vector<std::thread> submitters;
  for (uint64_t i = 0; i < 6; ++i) submitters.emplace_back([&, i] { crowd.submit(i, 60); });
  for (std::thread& thread : submitters) thread.join();
  expect_all_ended(crowd, scripted);
  crowd.engine.drain(10);
  EXPECT_EQ(crowd.engine.stats().requests_accepted, crowd.accepted.size());
  EXPECT_EQ(crowd.accepted.size() + crowd.num_refused, 360U);
}

TEST(EngineConcurrency, FailureAmongManySubmitters) {
  ScriptedEngine scripted;
  scripted.executor->before_step = [](const StepInput& input) {
    if (input.plan.step == 25) throw Fatal("rank 3 failed in step 25");
  };
  Crowd crowd(scripted.start());
  std::vector<std::thread> submitters;
  for (uint64_t i = 0; i < 6; ++i) submitters.emplace_back([&, i] { crowd.submit(i, 60); });
  for (std::thread& thread : submitters) thread.join();
  expect_all_ended(crowd, scripted);
  EXPECT_FALSE(crowd.engine.health().serving);
  const EngineStats stats = crowd.engine.stats();
  EXPECT_GE(stats.requests_failed, 1U);
  EXPECT_EQ(stats.requests_finished + stats.requests_failed, stats.requests_accepted);
}

TEST(EngineConcurrency, DrainsWhileOthersSubmit) {
  ScriptedEngine scripted;
  Crowd crowd(scripted.start());
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { crowd.submit(i, 60); });
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { crowd.engine.drain(0.01); });
  for (std::thread& thread : threads) thread.join();
  for (const Submission& submission : crowd.accepted)
    EXPECT_NE(submission.reply.now().finish, FinishReason::kNotFinished) << "drained before drain() returned";
  expect_all_ended(crowd, scripted);
}

TEST(EngineConcurrency, DestructionAtAnyMoment) {
  for (int round = 0; round < 20; ++round) {
    std::vector<Reply> replies;
    {
      ScriptedEngine scripted;
      Engine& engine = scripted.start();
      for (int i = 0; i < 6; ++i) {
        Reply reply;
        ASSERT_TRUE(engine.submit(long_request(), reply.sink()).ok());
        replies.push_back(reply);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    }
    for (const Reply& reply : replies) EXPECT_NE(reply.now().finish, FinishReason::kNotFinished);
  }
}

}  // namespace
}  // namespace lockstep::runtime
