#include "lockstep/runtime/scheduler/waiting_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "lockstep/runtime/step_loop.h"
#include "tests/runtime/engine_fixture.h"
#include "tests/runtime/scheduler_fixture.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;

class Queue {
 public:
  struct Who {
    std::string tenant;
    int32_t priority = 0;
    int32_t num_tokens = 10;
  };
  RequestId add(const Who& who) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = ++last_id_;
    sequence->tenant = who.tenant;
    sequence->priority = who.priority;
    sequence->tokens.resize(static_cast<size_t>(who.num_tokens));
    queue.push(*sequence);
    sequences_.push_back(std::move(sequence));
    return last_id_;
  }
  Sequence& of(RequestId id) { return *sequences_.at(id - 1); }
  RequestId start() {
    Sequence& first = *queue.first();
    queue.take(first);
    return first.id;
  }
  std::vector<RequestId> start(int count) {
    std::vector<RequestId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(start());
    return ids;
  }
  WaitingQueue queue;

 private:
  std::vector<std::unique_ptr<Sequence>> sequences_;
  RequestId last_id_ = 0;
};

// contract: schedule.turns
TEST(WaitingQueue, OneTenantsRequestsStartInOrderOfArrival) {
  Queue q;
  for (int i = 1; i <= 5; ++i) q.add({.num_tokens = 100 / i});
  EXPECT_THAT(q.start(5), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_TRUE(q.queue.empty());
  EXPECT_EQ(q.queue.first(), nullptr);
}

// contract: schedule.turns
TEST(WaitingQueue, TenantsTakeTurns) {
  Queue q;
  for (int i = 0; i < 6; ++i) q.add({.tenant = "crowd"});  // 1 to 6
  q.add({.tenant = "alone"});                              // 7
  EXPECT_THAT(q.start(3), ElementsAre(1, 7, 2));
  q.add({.tenant = "alone"});  // 8: its second, as the crowd's third
  EXPECT_THAT(q.start(5), ElementsAre(8, 3, 4, 5, 6));
}

TEST(WaitingQueue, LongPromptsCountForMore) {
  Queue q;
  q.add({.tenant = "long", .num_tokens = 300});
  q.add({.tenant = "long", .num_tokens = 300});
  for (int i = 0; i < 4; ++i) q.add({.tenant = "short", .num_tokens = 100});
  EXPECT_THAT(q.start(6), ElementsAre(1, 3, 4, 5, 2, 6));
}

TEST(WaitingQueue, WhatIsGeneratedCountsToo) {
  Queue q;
  q.add({.tenant = "talker"});
  q.add({.tenant = "quiet"});
  q.add({.tenant = "quiet"});
  EXPECT_EQ(q.start(), 1U);
  q.of(1).account->tokens_had += 500;  // as the scheduler does for each token
  q.add({.tenant = "talker"});         // 4
  q.add({.tenant = "quiet"});          // 5
  EXPECT_THAT(q.start(4), ElementsAre(2, 3, 5, 4));
}

// contract: schedule.turns
TEST(WaitingQueue, HigherPrioritiesComeFirstAndThePreemptedBeforeThem) {
  Queue q;
  q.add({.priority = 0});
  q.add({.priority = -3});
  q.add({.priority = 7});
  q.add({.priority = 7});
  const RequestId begun = q.add({.priority = -9});
  q.queue.remove(q.of(begun));
  q.queue.push_preempted(q.of(begun));
  EXPECT_TRUE(q.queue.is_first_due());
  EXPECT_THAT(q.start(5), ElementsAre(begun, 3, 4, 1, 2));
}

// contract: schedule.no-starvation
TEST(WaitingQueue, TheOldestIsOvertakenOnlySoOften) {
  Queue q;
  q.add({.priority = 0});
  q.add({.priority = 0});
  for (int i = 0; i < 100; ++i) q.add({.priority = 5});
  int num_before_first = 0, num_before_second = 0;
  while (q.start() != 1) ++num_before_first;
  while (q.start() != 2) ++num_before_second;
  EXPECT_EQ(num_before_first, WaitingQueue::kMostOvertakings);
  EXPECT_EQ(num_before_second, WaitingQueue::kMostOvertakings);
}

TEST(WaitingQueue, TenantsWithoutNumberAreForgotten) {
  Queue q;
  q.add({.tenant = "first"});
  for (int i = 0; i < 5000; ++i) {
    q.add({.tenant = std::to_string(i)});
    q.start();
    q.of(static_cast<RequestId>(i) + 1).account = nullptr;  // it has ended
  }
  EXPECT_EQ(q.queue.size(), 1U);
  EXPECT_LE(q.queue.num_accounts(), 1100U);
}

TEST(WaitingQueue, ThingsThatOnlyABugCanDo) {
  Queue q;
  q.add({});
  EXPECT_THROW(q.queue.push(q.of(1)), Fatal);
  q.start();
  EXPECT_THROW(q.queue.remove(q.of(1)), Fatal);
}

// contract: schedule.no-starvation
TEST(Scheduler, AReplicaThatNeverGetsThePlaceThatIsLeftIsDueInTheEnd) {
  SchedulerLimits limits = roomy();
  limits.shape.num_replicas = 2;
  limits.max_running_requests = 1;
  Scheduler scheduler(limits);
  const auto add = [&](RequestId id, int replica, int32_t priority) {
    NewSequence sequence = prompt_of(id, 2);
    sequence.replica = replica;
    sequence.priority = priority;
    scheduler.add(std::move(sequence));
  };
  add(1, 0, 0);
  RequestId next_id = 2;
  for (; next_id < 5; ++next_id) add(next_id, 1, 9);
  int num_others = 0;
  while (!scheduler.sequence(1).is_running && num_others < 1000) {
    const std::vector<std::string> step = play(scheduler);
    if (step[1].empty()) continue;
    ++num_others;
    scheduler.remove(static_cast<RequestId>(std::stoi(step[1])));
    add(next_id++, 1, 9);
  }
  EXPECT_EQ(num_others, WaitingQueue::kMostOvertakings);
}

// Whoever was not in a step is not what failed, and may be tried again at once, elsewhere.
TEST(StepLoop, AFailureTellsWhoHasNotStartedToComeAgain) {
  SchedulerLimits limits = small_engine_limits();
  limits.shape.num_replicas = 1;
  limits.max_running_requests = 1;
  const ModelInfo model = scripted_model(32, limits.context_length);
  ScriptedExecutor executor(limits, 32);
  StepLoop loop({limits, {.num_logits = 32}, model.eos_token_ids}, executor);
  std::vector<Event> ends(3);
  const auto accepted = [&](RequestId id) {
    return AcceptedRequest{.id = id,
                           .request = long_request(),
                           .sink =
                               [&ends, id](const Event& event) {
                                 if (event.finish != FinishReason::kNotFinished) ends[id - 1] = event;
                               },
                           .seed = 1,
                           .waits_until = std::chrono::steady_clock::time_point::max()};
  };
  loop.admit(accepted(1));
  loop.admit(accepted(2));
  loop.step();
  loop.fail_all("rank 1 is gone");
  loop.refuse(accepted(3), FinishReason::kError, "rank 1 is gone");
  loop.deliver();
  for (const Event& end : ends) EXPECT_EQ(end.finish, FinishReason::kError);
  EXPECT_EQ(ends[0].error_code, ErrorCode::kInternal);
  EXPECT_EQ(ends[1].error_code, ErrorCode::kUnavailable);
  EXPECT_EQ(ends[2].error_code, ErrorCode::kUnavailable);
}

// contract: request.queue-timeout
TEST(StepLoop, WhoeverHasNotStartedInTimeIsToldToComeAgain) {
  using Clock = std::chrono::steady_clock;
  SchedulerLimits limits = small_engine_limits();
  limits.shape.num_replicas = 1;
  limits.max_running_requests = 1;
  const ModelInfo model = scripted_model(32, limits.context_length);
  ScriptedExecutor executor(limits, 32);
  StepLoop loop({limits, {.num_logits = 32}, model.eos_token_ids}, executor);
  const Clock::time_point start{};
  std::vector<Event> ends(3);
  const auto admit = [&](RequestId id, int seconds) {
    loop.admit({.id = id,
                .request = long_request(),
                .sink =
                    [&ends, id](const Event& event) {
                      if (event.finish != FinishReason::kNotFinished) ends[id - 1] = event;
                    },
                .seed = 1,
                .waits_until = start + std::chrono::seconds(seconds)});
  };
  admit(1, 10);
  admit(2, 20);
  admit(3, 15);
  loop.step();
  loop.expire(start + std::chrono::seconds(14));
  loop.deliver();
  EXPECT_EQ(loop.num_ended(), 0U) << "1 has started and 3 has a second left";
  loop.expire(start + std::chrono::seconds(15));
  loop.deliver();
  EXPECT_EQ(loop.num_ended(), 1U);
  EXPECT_EQ(ends[2].finish, FinishReason::kError);
  EXPECT_EQ(ends[2].error_code, ErrorCode::kUnavailable);
  EXPECT_THAT(ends[2].error, testing::HasSubstr("--queue-timeout"));
  loop.cancel(1);
  loop.step();  // 2 starts
  loop.expire(start + std::chrono::seconds(99));
  loop.deliver();
  EXPECT_EQ(loop.num_ended(), 2U);
  loop.cancel_all();
  loop.deliver();
  loop.scheduler().check_idle();
}

}  // namespace
}  // namespace lockstep::runtime
