#include "lockstep/runtime/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <limits>
#include <stdexcept>
#include <thread>

#include "tests/runtime/engine_fixture.h"

namespace lockstep::runtime {
namespace {

using testing::HasSubstr;

Reply submit(Engine& engine, Request request) {
  Reply reply;
  const Result<RequestId> id = engine.submit(std::move(request), reply.sink());
  EXPECT_TRUE(id.ok()) << id.error().message;
  return reply;
}

TEST(EngineLoop, AnswersWhatTheModelSaysAlone) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  Request request = short_request(20, 42);
  request.num_top_logprobs = 2;
  request.prompt_top_logits = 3;
  const Outcome outcome = submit(engine, request).wait();
  expect_as_unscheduled(outcome, unscheduled(request, 42, scripted.model, scripted.limits));
  EXPECT_EQ(outcome.tokens.size(), 20U);
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
}

TEST(EngineLoop, SaysWhatItWasGiven) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  EXPECT_EQ(engine.model().name, "scripted");
  EXPECT_EQ(engine.plan_text(), "the plan");
  EXPECT_EQ(engine.plan_json()["plan"], 1);
  EXPECT_TRUE(engine.health().serving);
  EXPECT_EQ(engine.health().reason, "");
}

TEST(EngineLoop, ModelInfoHoldsTheContextThatThisEngineAllows) {
  ScriptedEngine scripted;
  scripted.parts.model.context_length = 1 << 20;
  EXPECT_EQ(scripted.start().model().context_length, 60);
}

// contract: request.stop-not-delivered
TEST(EngineLoop, AStopIdEndsARequestAndIsNotDelivered) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  const std::vector<int32_t> ids = submit(engine, short_request(20)).wait().ids();
  Request request = short_request(20);
  request.stop_token_ids = {ids[5]};
  const auto first = static_cast<size_t>(std::find(ids.begin(), ids.end(), ids[5]) - ids.begin());
  const Outcome stopped = submit(engine, request).wait();
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.stop_token_id, ids[5]);
  EXPECT_EQ(stopped.ids(),
            std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first)));
  EXPECT_EQ(engine.stats().output_tokens, 20 + first);
}

// Every draw is the end of sequence unless it may not be.
Request eager_to_end(int max_new_tokens) {
  Request request = short_request(max_new_tokens);
  request.sampling.logit_bias = {{ScriptedEngine::kVocab - 1, 100.0f}};
  request.ignore_eos = false;
  return request;
}

// contract: request.minimum-length
TEST(EngineLoop, EndOfSequenceWaitsForTheMinimum) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  EXPECT_EQ(submit(engine, eager_to_end(9)).wait().tokens.size(), 0U);
  Request request = eager_to_end(9);
  request.min_new_tokens = 4;
  const Outcome outcome = submit(engine, request).wait();
  EXPECT_EQ(outcome.finish, FinishReason::kStop);
  EXPECT_EQ(outcome.stop_token_id, ScriptedEngine::kVocab - 1);
  EXPECT_EQ(outcome.tokens.size(), 4U);
  for (const int32_t id : outcome.ids()) EXPECT_NE(id, ScriptedEngine::kVocab - 1);
}

TEST(EngineLoop, EndOfSequenceThatIsIgnoredIsATokenLikeOthers) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  Request request = eager_to_end(3);
  request.ignore_eos = true;
  const Outcome outcome = submit(engine, request).wait();
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
  EXPECT_EQ(outcome.ids(), std::vector<int32_t>(3, ScriptedEngine::kVocab - 1));
}

// contract: request.scores
TEST(EngineLoop, ScoringAPromptEndsWithItsScores) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  Request request = short_request(0);
  request.prompt.assign(30, 2);
  request.prompt_top_logits = 4;
  const Outcome outcome = submit(engine, request).wait();
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
  EXPECT_TRUE(outcome.tokens.empty());
  ASSERT_TRUE(outcome.scores.has_value());
  EXPECT_EQ(outcome.scores->top_ids.size(), 30U);
  expect_as_unscheduled(outcome, unscheduled(request, 1, scripted.model, scripted.limits));
  request.prompt_top_logits = 0;
  const Outcome bare = submit(engine, request).wait();
  EXPECT_EQ(bare.finish, FinishReason::kLength);
  EXPECT_FALSE(bare.scores.has_value());
}

// Each token of a prompt has the log probability that the model gives it behind the tokens before it, in
// however many chunks the prompt is computed.
TEST(EngineLoop, PromptsHaveLogProbabilities) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  for (const int max_new_tokens : {0, 3}) {
    Request request = short_request(max_new_tokens);
    request.prompt.clear();
    for (int i = 0; i < 30; ++i) request.prompt.push_back(i * 7 % 11);
    request.prompt_logprobs = 2;
    std::promise<void> ended;
    std::vector<OutputToken> prompt;
    int num_events = 0;
    ASSERT_TRUE(engine
                    .submit(request,
                            [&](const Event& event) {
                              if (!event.prompt.empty()) prompt = event.prompt, ++num_events;
                              if (event.finish != FinishReason::kNotFinished) ended.set_value();
                            })
                    .ok());
    ended.get_future().wait();
    EXPECT_EQ(num_events, 1);
    ASSERT_EQ(prompt.size(), request.prompt.size());
    History history;
    for (size_t i = 0; i < prompt.size(); ++i) {
      EXPECT_EQ(prompt[i].token_id, request.prompt[i]);
      if (i > 0) {
        const std::vector<float> logits = scripted_logits(history, scripted.model.vocab);
        double sum = 0;
        for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
        const auto logprob_of = [&](int32_t id) {
          return static_cast<double>(logits[static_cast<size_t>(id)]) - std::log(sum);
        };
        EXPECT_NEAR(prompt[i].logprob, logprob_of(request.prompt[i]), 1e-5);
        ASSERT_EQ(prompt[i].top.size(), 2U);
        const float most = *std::max_element(logits.begin(), logits.end());
        EXPECT_NEAR(prompt[i].top[0].logprob, static_cast<double>(most) - std::log(sum), 1e-5);
        EXPECT_GE(prompt[i].top[0].logprob, prompt[i].top[1].logprob);
      }
      history.add(request.prompt[i]);
    }
  }
}

// contract: request.ends-at-the-limit
TEST(EngineLoop, ContextAndCacheEndARequest) {
  SchedulerLimits limits = small_engine_limits();
  {
    ScriptedEngine scripted(limits);
    const Outcome outcome = submit(scripted.start(), long_request(10)).wait();
    EXPECT_EQ(outcome.finish, FinishReason::kLength);
    EXPECT_EQ(outcome.tokens.size(), 50U) << "60 tokens with the prompt";
  }
  limits.pages_per_replica = 5;
  ScriptedEngine scripted(limits);
  const Outcome outcome = submit(scripted.start(), long_request(10)).wait();
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
  EXPECT_EQ(outcome.tokens.size(), 10U) << "20 tokens fill the cache";
}

TEST(EngineLoop, RefusesWhatCannotBeServed) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  Reply reply;
  Request request = short_request(1);
  request.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  const Result<RequestId> refused = engine.submit(request, reply.sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "temperature");
  EXPECT_FALSE(engine.submit(short_request(1), nullptr).ok());
  EXPECT_EQ(engine.stats().requests_accepted, 0U);
}

TEST(EngineLoop, SeedsAreFreshUnlessGiven) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  Request request = short_request(30);
  EXPECT_EQ(submit(engine, request).wait().ids(), submit(engine, request).wait().ids());
  request.sampling.seed.reset();
  EXPECT_NE(submit(engine, request).wait().ids(), submit(engine, request).wait().ids())
      << "equal with a probability below 1e-20";
}

// contract: sample.valid-tokens
TEST(EngineLoop, IdsThatNoTokenizerKnowsAreNotDrawn) {
  ScriptedEngine scripted(small_engine_limits(), 5);
  Engine& engine = scripted.start();
  for (const int32_t id : submit(engine, long_request()).wait().ids()) EXPECT_LT(id, 5);
}

// Holds the executor before its first step until it is let go.
class Gate {
 public:
  void wait() {
    is_reached_ = true;
    while (!is_open_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void open() { is_open_ = true; }
  void wait_until_reached() {
    while (!is_reached_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::atomic<bool> is_open_ = false, is_reached_ = false;
};

// contract: request.bounded-queue
TEST(EngineLoop, AFullQueueRefusesWithTheNumbers) {
  SchedulerLimits limits = small_engine_limits();
  limits.max_running_requests = 2;
  limits.max_queued_requests = 3;
  ScriptedEngine scripted(limits);
  Gate gate;
  scripted.executor->before_step = [&](const StepInput&) { gate.wait(); };
  Engine& engine = scripted.start();
  std::vector<Reply> replies;
  for (int i = 0; i < 5; ++i) replies.push_back(submit(engine, short_request(3)));
  const Result<RequestId> refused = engine.submit(short_request(3), Reply().sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().message, "5 requests are open: 2 may run and 3 may wait; try again later");
  gate.open();
  for (const Reply& reply : replies) EXPECT_EQ(reply.wait().finish, FinishReason::kLength);
  engine.drain(10);
  EXPECT_EQ(engine.stats().requests_accepted, 5U);
}

// contract: request.cancel
TEST(EngineLoop, CancelEndsARequestThatRunsOrWaits) {
  SchedulerLimits limits = small_engine_limits();
  limits.max_running_requests = 1;
  ScriptedEngine scripted(limits);
  Gate gate;
  scripted.executor->before_step = [&](const StepInput& input) {
    if (input.plan.step == 4) gate.wait();
  };
  Engine& engine = scripted.start();
  Reply running, waiting;
  const RequestId first = *engine.submit(long_request(), running.sink());
  const RequestId second = *engine.submit(long_request(), waiting.sink());
  gate.wait_until_reached();
  engine.cancel(first);
  engine.cancel(second);
  engine.cancel(second);
  engine.cancel(0);
  engine.cancel(12345);
  gate.open();
  const Outcome cancelled = running.wait();
  EXPECT_EQ(cancelled.finish, FinishReason::kCancelled);
  EXPECT_GE(cancelled.tokens.size(), 2U);
  EXPECT_EQ(waiting.wait().finish, FinishReason::kCancelled);
  EXPECT_EQ(waiting.now().tokens.size(), 0U);
  engine.cancel(first);
  EXPECT_EQ(submit(engine, short_request(2)).wait().finish, FinishReason::kLength) << "the engine goes on";
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.requests_cancelled, 2U);
  EXPECT_EQ(stats.requests_finished, 1U);
}

// contract: sink.may-throw
TEST(EngineLoop, ASinkThatThrowsLosesItsRequestOnly) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  const Reply other = submit(engine, short_request(12));
  std::atomic<int> num_events = 0, num_finals = 0;
  ASSERT_TRUE(engine
                  .submit(long_request(),
                          [&](const Event& event) {
                            ++num_events;
                            num_finals += event.finish == FinishReason::kCancelled ? 1 : 0;
                            if (num_events >= 3) throw std::runtime_error("the client broke");
                          })
                  .ok());
  ASSERT_TRUE(engine.submit(short_request(1), [](const Event&) { throw 42; }).ok());
  EXPECT_EQ(other.wait().finish, FinishReason::kLength);
  engine.drain(30);
  EXPECT_EQ(num_events, 4) << "the event after which it is cancelled, and the final one";
  EXPECT_EQ(num_finals, 1);
  EXPECT_EQ(engine.stats().requests_cancelled, 1U);
  EXPECT_EQ(engine.stats().requests_finished, 2U) << "a throw at the final event changes nothing";
}

// contract: sample.non-finite
TEST(EngineLoop, AFaultEndsItsRequestAndNoOther) {
  ScriptedEngine scripted;
  scripted.executor->fault_of = [](RequestId id, int32_t position) {
    return id == 1 && position == 7 ? std::string("layer 3, rank 1: logit not finite in rows 0 to 1")
                                    : std::string();
  };
  scripted.executor->spoil = [](RequestId id, std::span<float> logits) {
    if (id == 2) logits[4] = std::numeric_limits<float>::quiet_NaN();
  };
  Engine& engine = scripted.start();
  const Reply faulty = submit(engine, long_request()), spoilt = submit(engine, long_request()),
              sound = submit(engine, short_request(20));
  const Outcome outcome = faulty.wait();
  EXPECT_EQ(outcome.finish, FinishReason::kError);
  EXPECT_EQ(outcome.error, "layer 3, rank 1: logit not finite in rows 0 to 1");
  EXPECT_EQ(outcome.tokens.size(), 5U) << "positions 3 to 7";
  EXPECT_EQ(spoilt.wait().finish, FinishReason::kError);
  EXPECT_THAT(spoilt.now().error, HasSubstr("the logit of id 4 is nan at position 3"));
  expect_as_unscheduled(sound.wait(), unscheduled(short_request(20), 1, scripted.model, scripted.limits));
  EXPECT_EQ(engine.stats().requests_failed, 2U);
  EXPECT_TRUE(engine.health().serving);
}

// Throws at its n-th call of allow() or of accept().
class BrokenConstraint : public TokenConstraint {
 public:
  enum class Breaks { kAllow, kAccept };
  BrokenConstraint(Breaks breaks, int calls) : breaks_(breaks), calls_(calls) {}
  void allow(std::span<uint32_t> words) override {
    if (breaks_ == Breaks::kAllow && --calls_ == 0) throw std::runtime_error("no such state");
    std::fill(words.begin(), words.end(), ~uint32_t{0});
  }
  bool accept(int32_t /*token_id*/) override {
    if (breaks_ == Breaks::kAccept && --calls_ == 0) throw std::bad_alloc();
    return true;
  }

 private:
  const Breaks breaks_;
  int calls_;
};

TEST(EngineLoop, AConstraintThatThrowsEndsItsRequestAndNoOther) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  Request asks = short_request(20), accepts = short_request(20);
  asks.ignore_eos = accepts.ignore_eos = false;
  asks.constraint = std::make_shared<BrokenConstraint>(BrokenConstraint::Breaks::kAllow, 3);
  accepts.constraint = std::make_shared<BrokenConstraint>(BrokenConstraint::Breaks::kAccept, 2);
  const Reply asking = submit(engine, asks), accepting = submit(engine, accepts),
              sound = submit(engine, short_request(20));
  EXPECT_EQ(asking.wait().finish, FinishReason::kError);
  EXPECT_EQ(asking.now().error, "the constraint of the output failed: no such state");
  EXPECT_EQ(asking.now().tokens.size(), 2U);
  EXPECT_EQ(accepting.wait().finish, FinishReason::kError);
  EXPECT_EQ(accepting.now().tokens.size(), 1U);
  EXPECT_EQ(sound.wait().finish, FinishReason::kLength);
  EXPECT_TRUE(engine.health().serving);
}

// contract: request.one-final-event
// contract: engine.fails-as-a-whole
TEST(EngineLoop, AnExecutorThatFailsEndsAllRequestsWithTheReason) {
  SchedulerLimits limits = small_engine_limits();
  limits.max_running_requests = 2;
  ScriptedEngine scripted(limits);
  Gate gate;
  scripted.executor->before_step = [&](const StepInput& input) {
    if (input.plan.step < 3) return;
    gate.wait();
    throw Fatal("rank 1 left the barrier of edge 7");
  };
  Engine& engine = scripted.start();
  std::vector<Reply> replies;
  for (int i = 0; i < 4; ++i) replies.push_back(submit(engine, long_request()));
  gate.wait_until_reached();
  replies.push_back(submit(engine, long_request()));  // still in the mailbox when the step fails
  gate.open();
  for (const Reply& reply : replies) {
    const Outcome outcome = reply.wait();
    EXPECT_EQ(outcome.finish, FinishReason::kError);
    EXPECT_EQ(outcome.error, "rank 1 left the barrier of edge 7");
  }
  EXPECT_FALSE(engine.health().serving);
  EXPECT_THAT(engine.health().reason, HasSubstr("rank 1 left the barrier of edge 7"));
  const Result<RequestId> refused = engine.submit(short_request(1), Reply().sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("rank 1 left the barrier of edge 7"));
  engine.cancel(1);
  engine.drain(1);
  EXPECT_THAT(engine.health().reason, HasSubstr("rank 1")) << "draining does not hide why";
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.requests_failed, 5U);
  for (const ReplicaStats& replica : stats.replicas)
    EXPECT_EQ(replica.pages_used + replica.running + replica.queued, 0);
}

// An executor that breaks its own contract: rows that are missing, come twice or were never wanted.
class CarelessExecutor final : public Executor {
 public:
  using Act = std::function<void(const StepInput&, const LogitSink&, std::span<float>)>;
  explicit CarelessExecutor(Act act) : act_(std::move(act)) {}
  void run(const StepInput& input, const LogitSink& sink) override {
    std::vector<float> logits(ScriptedEngine::kVocab, 1.0f);
    act_(input, sink, logits);
  }

 private:
  Act act_;
};

// contract: step.each-wanted-row-once
TEST(EngineLoop, AnExecutorThatBreaksItsContractFailsTheEngine) {
  const auto error_with = [](CarelessExecutor::Act act) {
    ScriptedEngine scripted;
    scripted.parts.executor = std::make_unique<CarelessExecutor>(std::move(act));
    const Outcome outcome = submit(scripted.start(), short_request(2)).wait();
    EXPECT_EQ(outcome.finish, FinishReason::kError);
    return outcome.error;
  };
  const auto last_row = [](const StepInput& input) { return input.plan.counts[0].logit_rows[0]; };
  EXPECT_THAT(error_with([](auto&, auto&, auto) {}),
              HasSubstr("1 of 1 rows of logits did not come in step 0"));
  EXPECT_THAT(error_with([&](auto& input, auto& sink, auto logits) {
                sink({0, last_row(input), logits, ""});
                sink({0, last_row(input), logits, ""});
              }),
              HasSubstr("row 2 of replica 0 came twice"));
  EXPECT_THAT(error_with([&](auto&, auto& sink, auto logits) { sink({0, 0, logits, ""}); }),
              HasSubstr("row 0 of replica 0 are not wanted"));
  EXPECT_THAT(error_with([&](auto&, auto& sink, auto logits) { sink({2, 0, logits, ""}); }),
              HasSubstr("2 against 2"));
  EXPECT_THAT(error_with([&](auto& input, auto& sink, auto logits) {
                sink({0, last_row(input), logits.first(31), ""});
              }),
              HasSubstr("31 against 32"));
  EXPECT_THAT(error_with([](auto&, auto&, auto) { throw 7; }), HasSubstr("unknown type"));
}

// contract: engine.drain
TEST(EngineLoop, DrainWaitsForWhatRunsAndTakesNothingNew) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  std::vector<Reply> replies;
  for (int i = 0; i < 8; ++i) replies.push_back(submit(engine, long_request()));
  engine.drain(60);
  for (const Reply& reply : replies)
    EXPECT_EQ(reply.now().finish, FinishReason::kLength) << "already delivered";
  const Result<RequestId> refused = engine.submit(short_request(1), Reply().sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("draining"));
  EXPECT_FALSE(engine.health().serving);
  engine.drain(1);
}

TEST(EngineLoop, DrainCancelsWhatIsLeftInTheEnd) {
  for (const double seconds :
       {0.0, 0.02, -1.0, static_cast<double>(std::numeric_limits<float>::quiet_NaN())}) {
    ScriptedEngine scripted;
    scripted.executor->before_step = [](const StepInput&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    Engine& engine = scripted.start();
    const Reply reply = submit(engine, long_request());
    engine.drain(seconds);
    EXPECT_EQ(reply.now().finish, FinishReason::kCancelled);
  }
}

// contract: request.one-final-event
TEST(EngineLoop, DestructionCancelsWhatIsOpen) {
  std::vector<Reply> replies;
  {
    ScriptedEngine scripted;
    Engine& engine = scripted.start();
    for (int i = 0; i < 12; ++i) replies.push_back(submit(engine, long_request()));
    replies[0].wait_for_tokens(1);
  }
  for (const Reply& reply : replies) {
    const FinishReason finish = reply.now().finish;
    EXPECT_TRUE(finish == FinishReason::kCancelled || finish == FinishReason::kLength);
  }
}

TEST(EngineLoop, AnIdleEngineRunsNoStep) {
  ScriptedEngine scripted;
  std::atomic<int> num_steps = 0;
  scripted.executor->before_step = [&](const StepInput&) { ++num_steps; };
  Engine& engine = scripted.start();
  EXPECT_EQ(submit(engine, short_request(5)).wait().tokens.size(), 5U);
  engine.cancel(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(num_steps, 5);
}

// contract: engine.stats-before-events
TEST(EngineLoop, StatisticsAreThereBeforeTheEventsThatTheyCount) {
  ScriptedEngine scripted;
  Engine& engine = scripted.start();
  for (uint64_t i = 1; i <= 20; ++i) {
    submit(engine, short_request(3)).wait();
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.requests_finished, i);
    EXPECT_EQ(stats.requests_accepted, i);
    EXPECT_EQ(stats.prompt_tokens, 3 * i);
    EXPECT_EQ(stats.output_tokens, 3 * i);
    EXPECT_EQ(stats.steps, 3 * i);
    ASSERT_EQ(stats.replicas.size(), 2U);
    EXPECT_EQ(stats.replicas[0].pages_used, 0);
    EXPECT_EQ(stats.replicas[0].pages_total, 16);
    EXPECT_EQ(stats.replicas[0].running + stats.replicas[0].queued, 0);
    EXPECT_EQ(stats.num_ranks, 4);
    EXPECT_EQ(stats.last_step_rows, (std::vector<int>{1, 1, 0, 0})) << "one decode row, padded to two ranks";
    EXPECT_GT(stats.last_step_seconds, 0);
  }
}

TEST(EngineLoop, PartsThatAreMissingAreABug) {
  ScriptedEngine scripted;
  scripted.parts.executor.reset();
  EXPECT_THROW(make_engine(std::move(scripted.parts)), Fatal);
  ScriptedEngine other;
  other.parts.limits.page_size = 0;
  EXPECT_THROW(make_engine(std::move(other.parts)), Fatal);
}

// The model's own forward is not what lies before a step because drafts follow it.
TEST(EngineLoop, TimesOfAStepAreThoseOfAllItsForwards) {
  constexpr std::chrono::milliseconds kForward{3}, kDraft{2};
  ScriptedEngine it;
  it.executor->drafts = ScriptedExecutor::Drafts::kMade;
  it.parts.num_drafts = 2;
  std::atomic<int> num_forwards{0}, num_drafts{0};
  it.executor->before_step = [&](const StepInput& input) {
    const bool drafts = input.plan.forward == planning::Forward::kDraft;
    ++(drafts ? num_drafts : num_forwards);
    std::this_thread::sleep_for(drafts ? kDraft : kForward);
  };
  Engine& engine = it.start();
  EXPECT_EQ(submit(engine, short_request(12)).wait().tokens.size(), 12U);
  engine.drain(30);
  EXPECT_GT(num_forwards, 1);
  EXPECT_GT(num_drafts, num_forwards.load()) << "two a step";
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.steps, static_cast<uint64_t>(num_forwards.load()));
  EXPECT_GE(
      stats.phases.forward,
      std::chrono::duration<double>(num_forwards.load() * kForward + num_drafts.load() * kDraft).count());
}

// Pages that a request leaves in the cache hold what drafts need of them, also where nobody else is there.
TEST(EngineLoop, TheLastRequestsRowsAreDraftedOverToo) {
  ScriptedEngine it;
  it.executor->drafts = ScriptedExecutor::Drafts::kMade;
  it.parts.num_drafts = 2;
  std::atomic<int> num_rows{0};
  it.executor->before_step = [&](const StepInput& input) {
    for (const planning::ReplicaCounts& counts : input.plan.counts) num_rows += counts.num_draft_rows;
  };
  Engine& engine = it.start();
  Request request = short_request(1);
  request.prompt.assign(8, 1);  // two pages
  EXPECT_EQ(submit(engine, std::move(request)).wait().tokens.size(), 1U);
  engine.drain(30);
  EXPECT_EQ(num_rows, 8);
}

}  // namespace
}  // namespace lockstep::runtime
