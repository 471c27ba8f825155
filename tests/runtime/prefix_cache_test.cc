// The scheduler with a tree of prefixes: what is taken from it, what is left in it, what is given up first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/step_loop.h"
#include "tests/runtime/scheduler_fixture.h"
#include "tests/runtime/unscheduled.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;

SchedulerLimits sharing() {
  SchedulerLimits limits = roomy();
  limits.prefix_cache = PrefixCache::kOn;
  return limits;
}

NewSequence saying(RequestId id, std::vector<int32_t> tokens) {
  return {.id = id, .prompt = std::move(tokens)};
}

// contract: cache.prefix-reused
TEST(PrefixCache, AnEndedSequenceLeavesItsFullPagesForOthers) {
  Scheduler scheduler(sharing());
  scheduler.add(prompt_of(1, 10));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPPPPPPP+"));
  EXPECT_EQ(scheduler.sequence(1).num_from_cache, 0);
  scheduler.remove(1);
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 0);
  EXPECT_EQ(scheduler.replica_stats(0).pages_cached, 2);
  scheduler.add(prompt_of(2, 10));
  EXPECT_THAT(play(scheduler), ElementsAre("2:PP+"));
  EXPECT_EQ(scheduler.sequence(2).num_from_cache, 8);
  EXPECT_EQ(scheduler.prefix_counts().queried, 20U);
  EXPECT_EQ(scheduler.prefix_counts().hit, 8U);
}

// contract: cache.prefix-reused
TEST(PrefixCache, TheLastTokenOfAPromptIsAlwaysComputed) {
  Scheduler scheduler(sharing());
  scheduler.add(prompt_of(1, 8));
  play(scheduler);
  scheduler.remove(1);
  scheduler.add(prompt_of(2, 8));
  EXPECT_THAT(play(scheduler), ElementsAre("2:PPPP+")) << "its last page holds the token whose logits count";
  scheduler.remove(2);
  scheduler.add(prompt_of(3, 9));
  EXPECT_THAT(play(scheduler), ElementsAre("3:P+"));
  scheduler.remove(3);
  scheduler.add(prompt_of(4, 1));
  EXPECT_THAT(play(scheduler), ElementsAre("4:P+"));
}

TEST(PrefixCache, WhatWasGeneratedIsReusedToo) {
  Scheduler scheduler(sharing());
  scheduler.add(saying(1, {1, 2, 3}));
  for (int i = 0; i < 6; ++i) play(scheduler);  // draws 5 six times, five of them cached
  scheduler.remove(1);
  scheduler.add(saying(2, {1, 2, 3, 5, 5, 5, 5, 5, 8, 8}));
  EXPECT_THAT(play(scheduler), ElementsAre("2:PP+"));
}

// contract: cache.salts
TEST(PrefixCache, SequencesOfAnotherSaltComputeTheirOwn) {
  Scheduler scheduler(sharing());
  const auto run = [&](RequestId id, const char* salt) {
    NewSequence sequence = prompt_of(id, 10);
    sequence.cache_salt = salt;
    scheduler.add(std::move(sequence));
    const std::string step = play(scheduler).at(0);
    scheduler.remove(id);
    return step;
  };
  EXPECT_EQ(run(1, ""), "1:PPPPPPPPPP+");
  EXPECT_EQ(run(2, "alice"), "2:PPPPPPPPPP+");
  EXPECT_EQ(run(3, "bob"), "3:PPPPPPPPPP+");
  EXPECT_EQ(run(4, "alice"), "4:PP+");
  EXPECT_EQ(run(5, ""), "5:PP+");
}

// Both begin in the same step: the second waits for what the first computes.
// contract: schedule.computed-once
TEST(PrefixCache, WhoeverBeginsAlikeWaitsForTheOneThatIsComputing) {
  SchedulerLimits limits = sharing();
  limits.chunked_prefill_size = 12;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 18));
  scheduler.add(prompt_of(2, 17));
  scheduler.add(prompt_of(3, 13));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPPPPPPPPP"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPPP+")) << "2 and 3 wait: nobody is overtaken";
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:P+ 3:P+"));
}

TEST(PrefixCache, NobodyWaitsForALastPageThatIsComputedInAnyCase) {
  Scheduler scheduler(sharing());
  scheduler.add(prompt_of(1, 4));
  scheduler.add(prompt_of(2, 4));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPP+ 2:PPPP+"));
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 1) << "the same page in the end";
}

// contract: cache.prefix-reused
TEST(PrefixCache, AScoredPromptIsComputedWhole) {
  Scheduler scheduler(sharing());
  for (RequestId id = 1; id <= 2; ++id) {
    NewSequence scored = prompt_of(id, 10);
    scored.prompt_logits = WantedLogits::kAll;
    scheduler.add(std::move(scored));
    EXPECT_THAT(play(scheduler), ElementsAre(fmt::format("{}:PPPPPPPPPP*", id)));
    scheduler.remove(id);
  }
  EXPECT_EQ(scheduler.replica_stats(0).pages_cached, 2) << "the second found its pages computed already";
  scheduler.add(prompt_of(3, 10));
  EXPECT_THAT(play(scheduler), ElementsAre("3:PP+"));
}

// contract: cache.evicted-before-preempted
TEST(PrefixCache, UnusedPagesGoBeforeAnybodyIsPreempted) {
  SchedulerLimits limits = sharing();
  limits.pages_per_replica = 6;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 9));
  play(scheduler);
  scheduler.remove(1);  // two pages stay
  scheduler.add(saying(2, {60, 61, 62, 63, 64, 65, 66}));
  scheduler.add(saying(3, {70, 71, 72, 73, 74, 75, 76}));
  for (int i = 0; i < 3; ++i) play(scheduler);
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 6);
  EXPECT_EQ(scheduler.replica_stats(0).pages_cached, 0);
  EXPECT_EQ(scheduler.num_preemptions(), 0U);
}

// contract: cache.last-one-fits
TEST(PrefixCache, ASequenceAloneTakesAllThatIsCached) {
  SchedulerLimits limits = sharing();
  limits.pages_per_replica = 4;
  Scheduler scheduler(limits);
  scheduler.add(saying(1, {60, 61, 62, 63, 64, 65, 66, 67, 68}));
  play(scheduler);
  scheduler.remove(1);
  scheduler.add(prompt_of(2, 3));
  for (int i = 0; i < 13; ++i) play(scheduler);
  EXPECT_EQ(scheduler.sequence(2).num_tokens(), 16);
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 4);
}

// contract: cache.youngest-preempted
TEST(PrefixCache, APreemptedSequenceComputesAgainOnlyWhatWasForgotten) {
  SchedulerLimits limits = sharing();
  limits.pages_per_replica = 5;
  Scheduler scheduler(limits);
  scheduler.add(saying(1, {60, 61, 62, 63, 64, 65, 66, 67}));
  scheduler.add(saying(2, {70, 71, 72, 73, 74, 75, 76}));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPPPPP+ 2:PPPPPPP+"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+")) << "the ninth token of 2 needs a page";
  EXPECT_EQ(scheduler.num_preemptions(), 1U);
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 3);
  EXPECT_EQ(scheduler.replica_stats(0).pages_cached, 2);
  scheduler.remove(1);
  EXPECT_THAT(play(scheduler), ElementsAre("2:D+")) << "eight of its nine tokens are still there";
  EXPECT_EQ(scheduler.sequence(2).num_from_cache, 0) << "of its prompt, at its first start";
}

// contract: schedule.cheapest-replica
TEST(PrefixCache, AReplicaThatHasTheBeginningIsWorthItsLoad) {
  SchedulerLimits limits = sharing();
  limits.shape.num_replicas = 3;
  Scheduler scheduler(limits);
  NewSequence pinned = prompt_of(1, 41);
  pinned.replica = 1;
  scheduler.add(std::move(pinned));
  play(scheduler);
  scheduler.remove(1);
  scheduler.add(prompt_of(2, 42));  // 40 of its tokens are in replica 1
  EXPECT_THAT(play(scheduler), ElementsAre("", "2:PP+", ""));
  scheduler.add(prompt_of(3, 43));  // there are 43 tokens of load now, more than the 40 saved
  EXPECT_EQ(scheduler.sequence(3).replica, 0);
  scheduler.add(saying(4, {60, 61}));
  EXPECT_EQ(scheduler.sequence(4).replica, 2);
}

// contract: cache.faulty-forgotten
TEST(PrefixCache, WhatAFaultLeavesIsNotHandedOn) {
  Scheduler scheduler(sharing());
  scheduler.add(prompt_of(1, 10));
  play(scheduler);
  scheduler.add(prompt_of(2, 14));
  play(scheduler);
  scheduler.remove(2, Scheduler::Pages::kForget);
  EXPECT_EQ(scheduler.replica_stats(0).pages_cached, 0);
  scheduler.remove(1, Scheduler::Pages::kForget);
  EXPECT_EQ(scheduler.replica_stats(0).pages_cached, 0);
  scheduler.check_idle();
}

TEST(PrefixCache, ClearingForgetsWhatNobodyUses) {
  Scheduler scheduler(sharing());
  scheduler.add(prompt_of(1, 10));
  scheduler.add(saying(2, {60, 61, 62, 63, 64}));
  play(scheduler);
  scheduler.remove(1);
  scheduler.clear_cache();
  EXPECT_EQ(scheduler.replica_stats(0).pages_cached, 0);
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 2);
  scheduler.add(prompt_of(3, 10));
  EXPECT_THAT(play(scheduler), ElementsAre("2:D+ 3:PPPPPPPPPP+"));
}

SchedulerLimits recurrent() {
  SchedulerLimits limits = sharing();
  limits.sequence_state = SequenceState::kKept;
  limits.num_snapshots = 8;
  limits.tokens_between_snapshots = 16;
  return limits;
}

std::vector<int32_t> counting(int begin, int end) {
  std::vector<int32_t> tokens;
  for (int i = begin; i < end; ++i) tokens.push_back(i);
  return tokens;
}

// contract: cache.snapshots
TEST(Snapshots, APromptEndsItsLastButOneChunkWithAPageAndLeavesACopyThere) {
  Scheduler scheduler(recurrent());
  scheduler.add(prompt_of(1, 22));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPPPPPPPPPPPPPPPPP"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PP+"));
  scheduler.remove(1);
  scheduler.add(prompt_of(2, 22));
  const StepInput again = *scheduler.next();
  EXPECT_EQ(text_of(again.replicas[0]), "2:PP+");
  EXPECT_GE(again.replicas[0][0].load_slot, 8) << "behind the slots of running sequences";
  EXPECT_EQ(again.replicas[0][0].save_slot, -1);
  scheduler.commit();
  EXPECT_EQ(scheduler.sequence(2).num_from_cache, 20);
}

TEST(Snapshots, AShortPromptIsNotCutForOne) {
  SchedulerLimits limits = recurrent();
  limits.tokens_between_snapshots = 256;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 22));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPPPPPPPPPPPPPPPPPPP+"));
}

// Pages alone do not hold a beginning. Whoever finds pages and no copy makes one where the ways part.
// contract: cache.snapshots
TEST(Snapshots, WhoeverLacksACopyComputesAgainAndLeavesOne) {
  Scheduler scheduler(recurrent());
  scheduler.add(saying(1, counting(0, 30)));
  play(scheduler);
  play(scheduler);
  scheduler.remove(1);  // a copy after 28 tokens
  const auto branch = [&](RequestId id) {
    std::vector<int32_t> tokens = counting(0, 13);
    for (int i = 0; i < 9; ++i) tokens.push_back(60 + static_cast<int32_t>(id));
    scheduler.add(saying(id, tokens));
  };
  branch(2);
  branch(3);  // waits for the copy that 2 makes
  EXPECT_THAT(play(scheduler), ElementsAre("2:PPPPPPPPPPPP"));
  EXPECT_THAT(play(scheduler), ElementsAre("2:PPPPPPPP 3:PPPPPPPP"));
  EXPECT_EQ(scheduler.sequence(3).num_from_cache, 12);
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 3 + 2 * 2) << "the three pages are the same for both";
}

// contract: cache.snapshots
TEST(Snapshots, TheOneUsedLongestAgoGivesItsPlace) {
  SchedulerLimits limits = recurrent();
  limits.num_snapshots = 2;
  Scheduler scheduler(limits);
  const auto run = [&](RequestId id, int32_t first) {
    scheduler.add(saying(id, counting(first, first + 10)));
    for (int i = 0; i < 3; ++i) play(scheduler);
    const int32_t num_from_cache = scheduler.sequence(id).num_from_cache;
    scheduler.remove(id);
    return num_from_cache;
  };
  EXPECT_EQ(run(1, 0), 0);
  EXPECT_EQ(run(2, 100), 0);
  EXPECT_EQ(run(3, 0), 8);
  EXPECT_EQ(run(4, 200), 0) << "takes the place of 2's";
  EXPECT_EQ(run(5, 0), 8);
  EXPECT_EQ(run(6, 100), 0);
}

TEST(Snapshots, WithoutPlacesNothingIsReusedOrCutAndNobodyWaits) {
  SchedulerLimits limits = recurrent();
  limits.num_snapshots = 0;
  Scheduler scheduler(limits);
  for (RequestId id = 1; id <= 3; id += 2) {
    scheduler.add(prompt_of(id, 22));
    scheduler.add(prompt_of(id + 1, 22));
    EXPECT_THAT(play(scheduler), ElementsAre(fmt::format(
                                     "{}:PPPPPPPPPPPPPPPPPPPPPP+ {}:PPPPPPPPPPPPPPPPPPPPPP+", id, id + 1)));
    scheduler.remove(id);
    scheduler.remove(id + 1);
  }
}

TEST(Snapshots, AnAbandonedStepLeavesNone) {
  Scheduler scheduler(recurrent());
  scheduler.add(prompt_of(1, 22));
  ASSERT_TRUE(scheduler.next().has_value());
  scheduler.abandon();
  scheduler.remove(1);
  scheduler.check_idle();
}

// The figure that people ask for: 64 requests, 3,000 tokens in common, two replicas.
// contract: schedule.computed-once
// contract: request.cached-tokens
TEST(PrefixCache, ASharedPrefixIsComputedOnceAReplica) {
  constexpr int kShared = 3000, kVocab = 64, kReplicas = 2;
  SchedulerLimits limits;
  limits.shape.num_replicas = kReplicas;
  limits.shape.capacity = {.max_requests = 16, .max_rows = 528, .max_decode_rows = 16, .max_logit_rows = 32};
  limits.max_running_requests = 32;
  limits.chunked_prefill_size = 512;
  limits.page_size = 16;
  limits.pages_per_replica = 1000;
  limits.context_length = 4096;
  limits.prefix_cache = PrefixCache::kOn;
  const ModelInfo model = scripted_model(kVocab, limits.context_length);
  ScriptedExecutor executor(limits, kVocab);
  StepLoop loop({limits, {.num_logits = kVocab}, model.eos_token_ids}, executor);
  std::vector<Recorder> recorders(64);
  std::vector<Request> requests(64);
  int64_t num_cached = 0, num_output = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int t = 0; t < kShared; ++t) requests[i].prompt.push_back((t * 7 + t / 13) % kVocab);
    for (int t = 0; t < 5; ++t) requests[i].prompt.push_back(static_cast<int32_t>(i));
    requests[i].max_new_tokens = 3;
    requests[i].ignore_eos = true;
    loop.admit({i + 1, requests[i],
                [&recorder = recorders[i], &num_cached](const Event& event) {
                  num_cached += event.num_cached_tokens.value_or(0);
                  recorder(event);
                },
                i});
  }
  while (!loop.idle()) loop.step(), loop.deliver();
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_as_unscheduled(recorders[i].outcome(), unscheduled(requests[i], i, model, limits));
    num_output += std::ssize(recorders[i].outcome().tokens);
  }
  // All but the last, half full page of the 3,000 tokens; and no row more than what is left.
  constexpr int64_t kPages = kShared / 16 * 16;
  EXPECT_EQ(num_cached, (64 - kReplicas) * kPages);
  EXPECT_EQ(loop.stats().prefix_tokens_hit, static_cast<uint64_t>(num_cached));
  EXPECT_EQ(loop.stats().prefix_tokens_queried, 64U * (kShared + 5));
  EXPECT_EQ(executor.num_computed_rows, kReplicas * kPages + 64 * (kShared + 5 - kPages) + num_output - 64);
  loop.scheduler().check_idle();
}

}  // namespace
}  // namespace lockstep::runtime
