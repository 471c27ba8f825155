// Thousands of random schedules over tiny caches: whatever the interleaving of arrivals, cancellations,
// chunks and preemptions, each request says what it says alone. A failure prints the schedule's seed;
// LOCKSTEP_SCHEDULE_SEED=n runs that one schedule.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "lockstep/base/log.h"
#include "lockstep/runtime/scheduler/request_check.h"
#include "lockstep/runtime/step_loop.h"
#include "tests/runtime/unscheduled.h"
#include "tests/sanitized.h"

namespace lockstep::runtime {
namespace {

constexpr int kVocab = 24;

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool one_in(int n) { return between(1, n) == 1; }
  float real(float low, float high) { return std::uniform_real_distribution<float>(low, high)(engine_); }

 private:
  std::mt19937_64 engine_;
};

SchedulerLimits random_limits(Chance& chance) {
  SchedulerLimits limits;
  limits.shape.num_replicas = chance.between(1, 3);
  limits.shape.ranks_per_replica = chance.between(1, 3);
  planning::Capacity& capacity = limits.shape.capacity;
  capacity.max_requests = chance.between(1, 5);
  const int32_t quantum = limits.shape.row_quantum();
  capacity.max_rows = planning::round_up(capacity.max_requests + chance.between(0, 12), quantum);
  capacity.max_decode_rows = planning::round_up(capacity.max_requests, quantum);
  capacity.max_logit_rows = capacity.max_requests + chance.between(0, 6);
  limits.max_running_requests = chance.between(1, limits.shape.num_replicas * capacity.max_requests + 2);
  limits.chunked_prefill_size = chance.between(1, 12);
  limits.page_size = chance.between(1, 5);
  limits.pages_per_replica = chance.one_in(2) ? chance.between(3, 8) : chance.between(2, 16);
  limits.context_length = chance.between(4, 40);
  if (chance.one_in(2)) limits.prefix_cache = PrefixCache::kOn;
  if (chance.one_in(2)) {
    limits.sequence_state = SequenceState::kKept;
    limits.num_snapshots = chance.one_in(4) ? 0 : chance.between(1, 6);
    limits.tokens_between_snapshots = chance.between(1, 16);
  }
  return limits;
}

SamplingParams random_sampling(Chance& chance) {
  SamplingParams params;
  params.temperature = chance.one_in(3) ? 0 : chance.real(0.3f, 2);
  if (chance.one_in(3)) params.top_k = chance.between(1, kVocab);
  if (chance.one_in(3)) params.top_p = chance.real(0.1f, 1);
  if (chance.one_in(4)) params.min_p = chance.real(0, 0.3f);
  if (chance.one_in(4)) params.repetition_penalty = chance.real(0.8f, 1.5f);
  if (chance.one_in(4)) params.presence_penalty = chance.real(-1, 1);
  if (chance.one_in(4)) params.frequency_penalty = chance.real(-1, 1);
  if (chance.one_in(4)) params.logit_bias = {{chance.between(0, kVocab - 1), chance.real(-5, 5)}};
  return params;
}

// Two thirds of the prompts begin as another one did, prompt and output of it.
Request random_request(Chance& chance, const SchedulerLimits& limits, std::span<const int32_t> beginning) {
  Request request;
  const int longest = std::max(1, limits.max_sequence_tokens());
  const int length = chance.one_in(2) ? chance.between(1, longest) : chance.between(1, std::min(longest, 8));
  for (int i = 0; i < length; ++i) request.prompt.push_back(chance.between(0, kVocab - 1));
  if (!chance.one_in(3))
    for (size_t i = 0; i < std::min(request.prompt.size(), beginning.size()) && !chance.one_in(20); ++i)
      request.prompt[i] = beginning[i];
  if (chance.one_in(12)) request.cache_salt = "another tenant";
  if (chance.one_in(4)) request.priority = chance.between(-1, 2);
  if (chance.one_in(2)) request.tenant = chance.one_in(2) ? "alice" : "bob";
  request.sampling = random_sampling(chance);
  request.max_new_tokens = chance.one_in(6) ? 0 : chance.between(1, 20);
  if (chance.one_in(4)) request.min_new_tokens = chance.between(0, request.max_new_tokens);
  if (chance.one_in(3))
    request.stop_token_ids = {chance.between(0, kVocab - 1), chance.between(0, kVocab - 1)};
  request.ignore_eos = chance.one_in(2);
  request.num_top_logprobs = chance.between(-1, 3);
  request.prompt_top_logits = chance.one_in(4) ? chance.between(1, 3) : 0;
  if (chance.one_in(3)) request.replica = chance.between(0, limits.shape.num_replicas - 1);
  return request;
}

struct Submitted {
  Request request;
  uint64_t seed = 0;
  Recorder recorder;
  bool was_cancelled = false;
  int throws_at = -1;  // the event at which its sink throws
  int faulty_at = -1;  // the position whose logits are not finite
};

// What the schedules went through, so that a generator that lost its teeth is noticed.
struct Coverage {
  uint64_t preemptions = 0, requests = 0, cancelled = 0, scored = 0, mixed_steps = 0, idle_replicas = 0,
           refused = 0;
  uint64_t output_tokens = 0, failed = 0, drafted = 0, accepted = 0;
  uint64_t tokens_from_cache = 0, tokens_looked_up = 0, loads = 0, saves = 0;
};

constexpr const char* kFault = "layer 2: logit not finite";
constexpr const char* kFailure = "rank 1 failed";

// For the drafts of every request, as a configuration has it; sometimes there is less.
SchedulerLimits with_room(SchedulerLimits limits, int num_drafts, Chance& chance) {
  if (num_drafts == 0) return limits;
  limits.sequence_state = SequenceState::kNone;  // a state cannot be taken back
  limits.num_snapshots = 0;
  if (chance.one_in(4)) return limits;
  planning::Capacity& capacity = limits.shape.capacity;
  const int32_t more = capacity.max_requests * num_drafts;
  capacity.max_rows = planning::round_up(capacity.max_rows + more, limits.shape.row_quantum());
  capacity.max_decode_rows = planning::round_up(capacity.max_decode_rows + more, limits.shape.row_quantum());
  capacity.max_logit_rows += more;
  return limits;
}

class Schedule {
 public:
  explicit Schedule(uint64_t seed, int num_drafts = 0)
      : chance_(seed),
        limits_(with_room(random_limits(chance_), num_drafts, chance_)),
        model_(scripted_model(kVocab, limits_.context_length)),
        executor_(limits_, kVocab),
        loop_({limits_, {.num_logits = kVocab}, model_.eos_token_ids, num_drafts}, executor_) {
    if (num_drafts > 0) executor_.drafts = ScriptedExecutor::Drafts::kMade;
    executor_.fault_of = [this](RequestId id, int32_t position) {
      return submitted_.at(id).faulty_at == position ? std::string(kFault) : std::string();
    };
    executor_.before_step = [this](const StepInput& input) {
      trace_.add(input.plan.hash);
      for (const auto& sequences : input.replicas)
        for (const SequenceRows& rows : sequences)
          trace_.add(rows.id).add(static_cast<uint64_t>(rows.context));
      if (static_cast<int>(input.plan.step) == fails_at_) throw Fatal(kFailure);
    };
    if (chance_.one_in(20)) fails_at_ = chance_.between(0, 30);
  }

  uint64_t trace() const { return trace_.value(); }  // of all steps

  void play(Coverage& coverage) {
    ASSERT_TRUE(check_limits(limits_).ok());
    const int num_requests = chance_.between(1, 14);
    while (!has_failed_ && (static_cast<int>(submitted_.size()) < num_requests || !loop_.idle())) {
      ASSERT_LT(executor_.num_steps, 20000) << "somebody starves";
      const bool may_submit = static_cast<int>(submitted_.size()) < num_requests;
      if (may_submit && chance_.one_in(2))
        submit(coverage);
      else if (chance_.one_in(15) && !submitted_.empty())
        cancel_one();
      else if (!loop_.idle())
        step();
      loop_.scheduler().check_invariants();
    }
    loop_.scheduler().check_idle();
    check(coverage);
  }

 private:
  void submit(Coverage& coverage) {
    Request request = random_request(chance_, limits_, some_text());
    if (!check_request(request, model_, limits_)) {
      ++coverage.refused;
      return;
    }
    Submitted& made = submitted_[next_id_];
    made.request = request;
    made.seed = static_cast<uint64_t>(chance_.between(0, 1 << 30));
    if (chance_.one_in(30)) made.throws_at = chance_.between(0, 5);
    if (chance_.one_in(30)) made.faulty_at = chance_.between(0, 20);
    const auto sink = [&made, num_events = 0](const Event& event) mutable {
      made.recorder(event);
      if (num_events++ == made.throws_at) throw std::runtime_error("the client broke");
    };
    loop_.admit({next_id_, request, sink, made.seed});
    ++next_id_;
  }

  // What an earlier request was given and has said so far.
  std::vector<int32_t> some_text() {
    if (submitted_.empty()) return {};
    const Submitted& one =
        submitted_.at(static_cast<RequestId>(chance_.between(1, static_cast<int>(submitted_.size()))));
    std::vector<int32_t> text = one.request.prompt;
    const std::vector<int32_t> said = one.recorder.outcome().ids();
    text.insert(text.end(), said.begin(), said.end());
    return text;
  }

  void cancel_one() {
    const auto id = static_cast<RequestId>(chance_.between(1, static_cast<int>(next_id_) - 1));
    submitted_[id].was_cancelled = true;
    loop_.cancel(id);
    loop_.deliver();
  }

  void step() {
    try {
      loop_.step();
    } catch (const Fatal& failure) {
      if (std::string(failure.what()) != kFailure) throw;
      loop_.fail_all(failure.what());
      has_failed_ = true;
    }
    loop_.deliver();
  }

  void check_outcome(const Submitted& made) {
    const Outcome& outcome = made.recorder.outcome();
    const Outcome wanted = unscheduled(made.request, made.seed, model_, limits_);
    if (outcome.finish == FinishReason::kError && outcome.error != wanted.error) {
      EXPECT_TRUE(outcome.error == kFailure || (outcome.error == kFault && made.faulty_at >= 0))
          << outcome.error;
      ASSERT_LE(outcome.tokens.size(), wanted.tokens.size());
      return expect_same_tokens(outcome.tokens, std::span(wanted.tokens).first(outcome.tokens.size()));
    }
    EXPECT_TRUE(made.was_cancelled || made.throws_at >= 0 || outcome.finish != FinishReason::kCancelled);
    expect_as_unscheduled(outcome, wanted);
  }

  void check(Coverage& coverage) {
    for (const auto& [id, made] : submitted_) {
      SCOPED_TRACE(fmt::format("request {} with a prompt of {}", id, made.request.prompt.size()));
      const Outcome& outcome = made.recorder.outcome();
      ASSERT_NE(outcome.finish, FinishReason::kNotFinished);
      check_outcome(made);
      coverage.failed += outcome.finish == FinishReason::kError ? 1 : 0;
      coverage.cancelled += outcome.finish == FinishReason::kCancelled ? 1 : 0;
      coverage.scored += outcome.scores ? 1 : 0;
      coverage.output_tokens += outcome.tokens.size();
    }
    const EngineStats stats = loop_.stats();
    EXPECT_EQ(stats.requests_finished + stats.requests_cancelled + stats.requests_failed, submitted_.size());
    EXPECT_EQ(loop_.num_ended(), submitted_.size());
    coverage.requests += submitted_.size();
    coverage.preemptions += stats.preemptions;
    coverage.tokens_from_cache += stats.prefix_tokens_hit;
    coverage.tokens_looked_up += stats.prefix_tokens_queried;
    coverage.loads += static_cast<uint64_t>(executor_.num_loads);
    coverage.saves += static_cast<uint64_t>(executor_.num_saves);
    EXPECT_TRUE(limits_.prefix_cache == PrefixCache::kOn || stats.prefix_tokens_hit == 0);
    coverage.drafted += stats.drafted_tokens;
    coverage.accepted += stats.accepted_tokens;
    coverage.mixed_steps += static_cast<uint64_t>(executor_.num_mixed_steps);
    coverage.idle_replicas += static_cast<uint64_t>(executor_.num_idle_replicas);
  }

  Chance chance_;
  SchedulerLimits limits_;
  ModelInfo model_;
  ScriptedExecutor executor_;
  StepLoop loop_;
  std::map<RequestId, Submitted> submitted_;
  RequestId next_id_ = 1;
  int fails_at_ = -1;  // the step in which the executor fails
  bool has_failed_ = false;
  Hasher trace_;
};

constexpr uint64_t kFewer = test::kSanitized ? 8 : 1;

// Requests fail on purpose by the hundred.
class RandomSchedules : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kOff); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }
};

// contract: request.text-alone
// contract: request.one-final-event
// contract: step.contexts-advance
// contract: step.slot-kept
// contract: cache.own-or-shared
// contract: cache.all-returned
// contract: step.within-capacity
// contract: schedule.no-starvation
TEST_F(RandomSchedules, EachRequestSaysWhatItSaysAlone) {
  uint64_t first = 1, last = 8000 / kFewer;
  if (const char* chosen = std::getenv("LOCKSTEP_SCHEDULE_SEED"))
    first = last = std::strtoull(chosen, nullptr, 10);
  Coverage coverage;
  for (uint64_t seed = first; seed <= last && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("LOCKSTEP_SCHEDULE_SEED={}", seed));
    try {
      Schedule(seed).play(coverage);
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
  }
  if (first == last) return;
  EXPECT_GT(coverage.requests, 20000U / kFewer);
  EXPECT_GT(coverage.output_tokens, 50000U / kFewer);
  EXPECT_GT(coverage.preemptions, 2000U / kFewer);
  EXPECT_GT(coverage.cancelled, 1000U / kFewer);
  EXPECT_GT(coverage.scored, 2000U / kFewer);
  EXPECT_GT(coverage.mixed_steps, 5000U / kFewer);
  EXPECT_GT(coverage.idle_replicas, 5000U / kFewer);
  EXPECT_GT(coverage.refused, 100U / kFewer);
  EXPECT_GT(coverage.failed, 500U / kFewer);
  EXPECT_GT(coverage.tokens_from_cache, 5000U / kFewer);
  EXPECT_GT(coverage.loads, 400U / kFewer);
  EXPECT_GT(coverage.saves, 5000U / kFewer);
  RecordProperty("preemptions", std::to_string(coverage.preemptions));
  RecordProperty("tokens_from_cache", std::to_string(coverage.tokens_from_cache));
  RecordProperty("output_tokens", std::to_string(coverage.output_tokens));
}

// contract: draft.leaves-no-trace
// contract: draft.within-capacity
TEST_F(RandomSchedules, DraftsChangeNoText) {
  Coverage coverage;
  for (uint64_t seed = 1; seed <= 3000 / kFewer && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("LOCKSTEP_SCHEDULE_SEED={}", seed));
    try {
      Schedule(seed, 1 + static_cast<int>(seed % 4)).play(coverage);
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
  }
  EXPECT_GT(coverage.drafted, 4000U / kFewer);
  EXPECT_GT(coverage.accepted, 1500U / kFewer);
  EXPECT_GT(coverage.drafted - coverage.accepted, 1000U / kFewer);
  EXPECT_GT(coverage.preemptions, 400U / kFewer);
  EXPECT_GT(coverage.cancelled, 200U / kFewer);
  RecordProperty("drafted", std::to_string(coverage.drafted));
  RecordProperty("accepted", std::to_string(coverage.accepted));
}

// contract: schedule.deterministic
TEST_F(RandomSchedules, TheSameCallsFormTheSameSteps) {
  Coverage coverage;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Schedule first(seed), second(seed);
    first.play(coverage);
    second.play(coverage);
    EXPECT_EQ(first.trace(), second.trace()) << "LOCKSTEP_SCHEDULE_SEED=" << seed;
  }
}

}  // namespace
}  // namespace lockstep::runtime
