// What the engine does about steps that fail or do not end: requests hear of it in time, it starts again as
// often as it may, and a request that brings it down each time is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "lockstep/runtime/open_requests.h"
#include "tests/runtime/engine_fixture.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;
using State = Health::State;
using std::chrono::milliseconds;

// Steps of the scripted executor that fail or wait as a test tells them to. Outlives its executors.
struct Sabotage {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void(const StepInput&)> before_step;  // may throw
  bool is_stuck = false;                              // steps wait until this is false
  bool heeds_interrupts = true;                       // or stay stuck, as a rank in an endless loop
  std::string failed_rank;                            // what failure() says
  std::atomic<int> num_made = 0, num_alive = 0;
  int num_refusals = 0;  // of making an executor
  std::atomic<bool> may_make = true;
};

class SabotagedExecutor final : public Executor {
 public:
  SabotagedExecutor(Sabotage& sabotage, const SchedulerLimits& limits)
      : sabotage_(sabotage), inner_(limits, ScriptedEngine::kVocab) {
    ++sabotage_.num_made;
    ++sabotage_.num_alive;
  }
  ~SabotagedExecutor() override { --sabotage_.num_alive; }

  void run(const StepInput& input, const LogitSink& sink) override {
    {
      std::unique_lock lock(sabotage_.mutex);
      if (sabotage_.before_step) sabotage_.before_step(input);
      sabotage_.changed.wait(lock, [&] { return !sabotage_.is_stuck || !interrupt_.empty(); });
      if (!interrupt_.empty()) throw Fatal(interrupt_);
    }
    if (!input.plan.counts.empty() && input.plan.max_rows_of_any_home == 0) return;  // a probe
    inner_.run(input, sink);
  }
  std::string failure() const override {
    const std::lock_guard lock(sabotage_.mutex);
    return sabotage_.failed_rank;
  }
  std::string interrupt(const std::string& why) override {
    const std::lock_guard lock(sabotage_.mutex);
    const std::string told = why + ": rank 1 computes experts.3";
    if (sabotage_.heeds_interrupts) interrupt_ = told;
    sabotage_.changed.notify_all();
    return told;
  }

 private:
  Sabotage& sabotage_;
  std::string interrupt_;  // guarded by the sabotage's mutex
  ScriptedExecutor inner_;
};

struct SabotagedEngine {
  SabotagedEngine() {
    scripted.parts.executor = std::make_unique<SabotagedExecutor>(sabotage, scripted.limits);
    scripted.parts.make_executor = [this](const RestartBudget&) -> Result<std::unique_ptr<Executor>> {
      EXPECT_EQ(sabotage.num_alive, 0) << "two executors at a time need twice the memory";
      while (!sabotage.may_make) std::this_thread::sleep_for(milliseconds(1));
      if (sabotage.num_refusals > 0) {
        --sabotage.num_refusals;
        return Error{ErrorCode::kUnavailable, "no memory", ""};
      }
      return std::unique_ptr<Executor>(std::make_unique<SabotagedExecutor>(sabotage, scripted.limits));
    };
    FaultPolicy& faults = scripted.parts.faults;
    faults.grace = milliseconds(200);
    faults.first_backoff = milliseconds(1);
    faults.longest_backoff = milliseconds(4);
  }
  ~SabotagedEngine() {
    free_steps();
    scripted.engine.reset();
    while (sabotage.num_alive > 0) std::this_thread::sleep_for(milliseconds(1));
  }
  void change(const std::function<void(Sabotage&)>& how) {
    const std::lock_guard lock(sabotage.mutex);
    how(sabotage);
    sabotage.changed.notify_all();
  }
  void free_steps() {
    change([](Sabotage& s) { s.is_stuck = false; });
  }
  Engine& start() { return scripted.start(); }
  // Fails each step that holds a request with this first token.
  void fail_on(int32_t token) {
    change([token](Sabotage& s) {
      s.before_step = [token](const StepInput& input) {
        for (const auto& replica : input.replicas)
          for (const SequenceRows& rows : replica)
            if (rows.kind == RowKind::kPrompt && rows.token_ids.front() == token)
              throw Fatal("rank 2 failed: the poison");
      };
    });
  }

  Sabotage sabotage;
  ScriptedEngine scripted;
};

bool becomes(const Engine& engine, State state) {
  for (int i = 0; i < 5000; ++i) {
    if (engine.health().state == state) return true;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return false;
}

Reply submit(Engine& engine, const Request& request) {
  Reply reply;
  const Result<RequestId> id = engine.submit(request, reply.sink());
  EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().message);
  return reply;
}

Request starting_with(int32_t token, int max_new_tokens = 5) {
  Request request = short_request(max_new_tokens);
  request.prompt = {token, 2, 3};
  return request;
}

// contract: engine.restarts
TEST(EngineFaults, AFailedEngineStartsAgainAndGoesOnCounting) {
  SabotagedEngine sabotaged;
  Engine& engine = sabotaged.start();
  EXPECT_EQ(submit(engine, starting_with(1)).wait().finish, FinishReason::kLength);
  sabotaged.fail_on(7);
  sabotaged.change([](Sabotage& s) { s.is_stuck = true; });  // until both are there
  const Reply bystander = submit(engine, long_request());
  const Reply poison = submit(engine, starting_with(7));
  sabotaged.free_steps();
  EXPECT_EQ(poison.wait().finish, FinishReason::kError);
  EXPECT_THAT(poison.now().error, HasSubstr("rank 2 failed: the poison"));
  EXPECT_EQ(bystander.wait().finish, FinishReason::kError);
  ASSERT_TRUE(becomes(engine, State::kServing));
  const Reply later = submit(engine, starting_with(1));
  EXPECT_EQ(later.wait().finish, FinishReason::kLength);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.failures, 1U);
  EXPECT_EQ(stats.restarts, 1U);
  EXPECT_EQ(stats.requests_accepted, 4U);
  EXPECT_EQ(stats.requests_finished, 2U);
  EXPECT_EQ(stats.requests_failed, 2U);
  EXPECT_GE(stats.output_tokens, 10U);
  for (const ReplicaStats& replica : stats.replicas)
    EXPECT_EQ(replica.pages_used + replica.running + replica.queued, 0);
}

// The same prompt gives the same text before and after.
TEST(EngineFaults, ARestartChangesNoText) {
  SabotagedEngine sabotaged;
  Engine& engine = sabotaged.start();
  const Outcome before = submit(engine, starting_with(3, 9)).wait();
  sabotaged.fail_on(7);
  submit(engine, starting_with(7)).wait();
  ASSERT_TRUE(becomes(engine, State::kServing));
  const Outcome after = submit(engine, starting_with(3, 9)).wait();
  ASSERT_EQ(after.tokens.size(), before.tokens.size());
  for (size_t i = 0; i < after.tokens.size(); ++i)
    EXPECT_EQ(after.tokens[i].token_id, before.tokens[i].token_id) << i;
}

// contract: engine.restarts
TEST(EngineFaults, RestartsAreBoundedAndWhatCannotBeMadeCounts) {
  SabotagedEngine sabotaged;
  sabotaged.scripted.parts.faults.max_restarts = 3;
  sabotaged.sabotage.num_refusals = 2;
  Engine& engine = sabotaged.start();
  sabotaged.fail_on(7);
  submit(engine, starting_with(7)).wait();
  ASSERT_TRUE(becomes(engine, State::kServing)) << "the third attempt works";
  EXPECT_EQ(engine.stats().restarts, 1U);
  submit(engine, starting_with(7)).wait();
  ASSERT_TRUE(becomes(engine, State::kFailed));
  std::string reason;
  for (int i = 0; i < 1000 && reason.find("not started again") == std::string::npos; ++i) {
    reason = engine.health().reason;
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_THAT(reason, HasSubstr("not started again after 3 restarts"));
  EXPECT_THAT(reason, HasSubstr("the poison"));
  const Result<RequestId> refused = engine.submit(starting_with(1), Reply().sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

// Ranks may hang in their warm-up too: that is seen, and holds up no stop.
TEST(EngineFaults, ARestartThatDoesNotEndIsGivenUp) {
  SabotagedEngine sabotaged;
  sabotaged.scripted.parts.faults.restart_timeout = milliseconds(150);
  Engine& engine = sabotaged.start();
  sabotaged.sabotage.may_make = false;
  sabotaged.fail_on(7);
  submit(engine, starting_with(7)).wait();
  std::string reason;
  for (int i = 0; i < 5000 && reason.find("has not ended") == std::string::npos; ++i) {
    reason = engine.health().reason;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_THAT(reason, HasSubstr("its restart has not ended within 0."));
  EXPECT_EQ(engine.health().state, State::kFailed);
  EXPECT_FALSE(engine.stop(0.05)) << "something is left behind";
  sabotaged.sabotage.may_make = true;
  while (sabotaged.sabotage.num_made < 2) std::this_thread::sleep_for(milliseconds(1));
}

TEST(EngineFaults, AStopDuringARestartWaitsNoLongerThanItWasTold) {
  SabotagedEngine sabotaged;
  Engine& engine = sabotaged.start();
  sabotaged.sabotage.may_make = false;
  sabotaged.fail_on(7);
  submit(engine, starting_with(7)).wait();
  for (int i = 0; i < 5000 && engine.health().reason.find("begins in") == std::string::npos; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(50));  // into the making
  const auto begin = std::chrono::steady_clock::now();
  const bool all_came_back = engine.stop(0.05);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));
  sabotaged.sabotage.may_make = true;
  while (!all_came_back && sabotaged.sabotage.num_made < 2) std::this_thread::sleep_for(milliseconds(1));
}

TEST(EngineFaults, WhileItStartsAgainRequestsAreRefused) {
  SabotagedEngine sabotaged;
  sabotaged.scripted.parts.faults.first_backoff = milliseconds(60'000);
  Engine& engine = sabotaged.start();
  sabotaged.fail_on(7);
  submit(engine, starting_with(7)).wait();
  for (int i = 0; i < 5000 && engine.health().reason.find("begins in") == std::string::npos; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  ASSERT_EQ(engine.health().state, State::kRestarting);
  const Result<RequestId> refused = engine.submit(starting_with(1), Reply().sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("restart 1 of 5 begins"));
  EXPECT_FALSE(engine.health().serving);
  engine.drain(10);  // at once: nothing is open, and it does not come back
  EXPECT_EQ(engine.health().state, State::kDraining);
}

// contract: engine.stuck-step
TEST(EngineFaults, AStuckStepIsFoundByItsDeadlineAndNamed) {
  SabotagedEngine sabotaged;
  sabotaged.scripted.parts.faults.step_timeout = milliseconds(100);
  Engine& engine = sabotaged.start();
  sabotaged.change([](Sabotage& s) { s.is_stuck = true; });
  const Reply stuck = submit(engine, starting_with(1));
  const Outcome outcome = stuck.wait();
  EXPECT_EQ(outcome.finish, FinishReason::kError);
  EXPECT_THAT(outcome.error, HasSubstr("engine step 0 has run for 0."));
  EXPECT_THAT(outcome.error, HasSubstr("--step-timeout 0.1"));
  EXPECT_THAT(outcome.error, HasSubstr("rank 1 computes experts.3"));
  sabotaged.free_steps();
  ASSERT_TRUE(becomes(engine, State::kServing));
  EXPECT_EQ(submit(engine, starting_with(1)).wait().finish, FinishReason::kLength);
}

// contract: engine.stuck-step
TEST(EngineFaults, ARankThatDoesNotComeBackHoldsUpNoRequest) {
  SabotagedEngine sabotaged;
  sabotaged.scripted.parts.faults.step_timeout = milliseconds(100);
  Engine& engine = sabotaged.start();
  sabotaged.change([](Sabotage& s) { s.is_stuck = true, s.heeds_interrupts = false; });
  std::vector<Reply> replies;
  for (int i = 0; i < 20; ++i) replies.push_back(submit(engine, starting_with(1)));
  const auto begin = std::chrono::steady_clock::now();
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.wait().finish, FinishReason::kError);
    EXPECT_THAT(reply.now().error, HasSubstr("not all ranks have come back"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(100 + 2000));
  EXPECT_EQ(engine.health().state, State::kFailed);
  EXPECT_EQ(sabotaged.sabotage.num_made, 1) << "no second engine beside one that still runs";
  EXPECT_EQ(engine.stats().requests_failed, 20U);
  sabotaged.free_steps();  // it comes back after all, and says nothing more to those that have ended
  ASSERT_TRUE(becomes(engine, State::kServing));
  EXPECT_EQ(submit(engine, starting_with(1)).wait().finish, FinishReason::kLength);
  EXPECT_EQ(engine.stats().requests_failed, 20U);
  EXPECT_EQ(engine.stats().requests_finished, 1U);
}

// One rank has failed, another does not come back: nobody waits for the step's deadline.
TEST(EngineFaults, AFailedRankIsHeardOfWhileAnotherIsStuck) {
  SabotagedEngine sabotaged;  // its step timeout is 300 s
  Engine& engine = sabotaged.start();
  sabotaged.change([](Sabotage& s) {
    s.is_stuck = true, s.heeds_interrupts = false;
    s.failed_rank = "rank 3 failed: no such page";
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(submit(engine, starting_with(1)).wait().error, HasSubstr("rank 3 failed: no such page"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));
  sabotaged.change([](Sabotage& s) { s.failed_rank.clear(); });
}

TEST(EngineFaults, AnEngineWithAStuckStepCanBeStopped) {
  SabotagedEngine sabotaged;
  Engine& engine = sabotaged.start();
  sabotaged.change([](Sabotage& s) { s.is_stuck = true, s.heeds_interrupts = false; });
  const Reply reply = submit(engine, starting_with(1));
  while (engine.health().step_seconds == 0) std::this_thread::yield();
  EXPECT_FALSE(engine.stop(0.05));
  EXPECT_EQ(reply.now().finish, FinishReason::kError);
}

// contract: engine.poison
TEST(EngineFaults, ARequestThatFailsTheEngineEachTimeIsRefusedAndNoOther) {
  SabotagedEngine sabotaged;
  Engine& engine = sabotaged.start();
  sabotaged.fail_on(7);
  constexpr int kBystanders = 6;
  std::vector<Request> bystanders;
  for (int i = 0; i < kBystanders; ++i) bystanders.push_back(starting_with(10 + i, 30));
  int num_poisoned = 0;
  std::vector<bool> is_done(kBystanders, false);
  // Clients that try again until they are served or refused for good.
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(becomes(engine, State::kServing)) << engine.health().reason;
    std::vector<std::pair<size_t, Reply>> replies;
    for (size_t i = 0; i < bystanders.size(); ++i) {
      if (is_done[i]) continue;
      Reply reply;
      if (engine.submit(bystanders[i], reply.sink()).ok()) replies.emplace_back(i, reply);
    }
    Reply reply;
    const Result<RequestId> poison = engine.submit(starting_with(7), reply.sink());
    if (poison.ok()) {
      EXPECT_EQ(reply.wait().finish, FinishReason::kError);
      ++num_poisoned;
    } else if (poison.error().code == ErrorCode::kInvalidArgument) {
      EXPECT_THAT(poison.error().message, HasSubstr("3 failures"));
    }
    for (const auto& [i, of] : replies) is_done[i] = of.wait().finish == FinishReason::kLength;
    if (std::all_of(is_done.begin(), is_done.end(), [](bool done) { return done; }) && num_poisoned == 3)
      break;
  }
  EXPECT_EQ(num_poisoned, 3);
  ASSERT_TRUE(becomes(engine, State::kServing));
  EXPECT_EQ(engine.stats().failures, 3U);
  for (size_t i = 0; i < bystanders.size(); ++i) EXPECT_TRUE(is_done[i]) << i;
  const Result<RequestId> refused = engine.submit(starting_with(7), Reply().sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(engine.submit(starting_with(8), Reply().sink()).ok());
}

// Those that one more failure would convict wait for one another, and may be cancelled meanwhile.
TEST(EngineFaults, SuspectsRunOneAtATime) {
  SabotagedEngine sabotaged;
  sabotaged.scripted.parts.faults.max_request_failures = 2;
  Engine& engine = sabotaged.start();
  std::atomic<bool> fails = true;
  std::atomic<size_t> most_at_once = 0;
  sabotaged.change([&](Sabotage& s) {
    s.is_stuck = true;  // until all four are there
    s.before_step = [&](const StepInput& input) {
      size_t running = 0;
      for (const auto& replica : input.replicas) running += replica.size();
      if (fails.load() && running == 4) throw Fatal("by chance");
      if (!fails.load()) most_at_once = std::max(most_at_once.load(), running);
    };
  });
  std::vector<Reply> first;
  for (int i = 0; i < 4; ++i) first.push_back(submit(engine, starting_with(20 + i, 30)));
  sabotaged.free_steps();
  for (const Reply& reply : first) ASSERT_EQ(reply.wait().finish, FinishReason::kError);
  ASSERT_TRUE(becomes(engine, State::kServing));
  fails = false;
  std::vector<Reply> second;
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) {
    second.emplace_back();
    ids.push_back(engine.submit(starting_with(20 + i, 30), second.back().sink()).value());
  }
  engine.cancel(ids[3]);
  EXPECT_EQ(second[3].wait().finish, FinishReason::kCancelled);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(second[static_cast<size_t>(i)].wait().finish, FinishReason::kLength);
  EXPECT_EQ(most_at_once, 1U);
}

// contract: engine.health
TEST(EngineFaults, AnIdleEngineIsHealthyWhenItAnswersAProbe) {
  SabotagedEngine sabotaged;
  sabotaged.scripted.parts.faults.probe_after = milliseconds(20);
  sabotaged.scripted.parts.faults.step_timeout = milliseconds(100);
  Engine& engine = sabotaged.start();
  std::atomic<int> num_probes = 0;
  sabotaged.change([&](Sabotage& s) { s.before_step = [&](const StepInput&) { ++num_probes; }; });
  for (int i = 0; i < 5000 && num_probes < 3; ++i) {
    EXPECT_TRUE(engine.health().serving);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(num_probes, 3);
  EXPECT_EQ(engine.stats().steps, 0U) << "probes are nobody's steps";
  sabotaged.change([&](Sabotage& s) { s.before_step = nullptr, s.is_stuck = true; });
  bool was_unhealthy = false;
  for (int i = 0; i < 5000 && !was_unhealthy; ++i) {
    was_unhealthy = !engine.health().serving;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(was_unhealthy);
  sabotaged.free_steps();
  EXPECT_TRUE(becomes(engine, State::kServing));
}

// What had no row in a step is not what failed, and may be tried again.
TEST(EngineFaults, WhoHasNotRunIsToldToComeAgain) {
  auto open = std::make_shared<OpenRequests>(3);
  std::vector<Event> ends(4);
  const auto sink = [&](size_t i) { return [&ends, i](const Event& event) { ends[i] = event; }; };
  const EventSink begun = open->add(1, sink(1), 11);
  open->add(2, sink(2), 12);
  open->add(3, sink(3), 13);
  begun({.id = 1});
  const RequestId running[] = {2};
  EXPECT_EQ(open->end_all("lost", running), 3U);
  EXPECT_EQ(ends[1].error_code, ErrorCode::kInternal);
  EXPECT_EQ(ends[2].error_code, ErrorCode::kInternal);
  EXPECT_EQ(ends[3].error_code, ErrorCode::kUnavailable);
}

// A sink that does not return loses its own request, and no other is held up by it.
TEST(EngineFaults, ASinkThatDoesNotReturnHoldsUpNoOther) {
  auto open = std::make_shared<OpenRequests>(3);
  std::atomic<bool> is_in = false, may_go = false;
  std::atomic<int> num_ends = 0;
  const EventSink slow = open->add(
      1,
      [&](const Event&) {
        is_in = true;
        while (!may_go) std::this_thread::sleep_for(milliseconds(1));
      },
      11);
  open->add(2, [&](const Event& event) { num_ends += event.finish == FinishReason::kError ? 1 : 0; }, 12);
  std::thread engine([&] { slow({.id = 1}); });
  while (!is_in) std::this_thread::yield();
  EXPECT_EQ(open->end_all("lost", {}), 1U);
  EXPECT_EQ(num_ends, 1);
  EXPECT_EQ(open->size(), 0U);
  may_go = true;
  engine.join();
}

}  // namespace
}  // namespace lockstep::runtime
