#include "lockstep/runtime/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/hash.h"
#include "tests/runtime/scheduler_fixture.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Scheduler, NoSequenceNoStep) {
  Scheduler scheduler(roomy());
  EXPECT_FALSE(scheduler.next().has_value());
  scheduler.check_idle();
}

// contract: schedule.decode-and-chunks
TEST(Scheduler, MixesDecodeRowsWithPromptChunksInOrderOfArrival) {
  SchedulerLimits limits = roomy();
  limits.chunked_prefill_size = 4;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 6));
  scheduler.add(prompt_of(2, 3));
  scheduler.add(prompt_of(3, 1));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPP"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PP+ 2:PP"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:P+ 3:P+"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+ 3:D+"));
}

// contract: step.contexts-advance
TEST(Scheduler, RowsCarryTokensContextAndPages) {
  SchedulerLimits limits = roomy();
  limits.chunked_prefill_size = 5;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 7));
  const StepInput first = *scheduler.next();
  scheduler.commit();
  const StepInput second = *scheduler.next();
  scheduler.commit();
  const SequenceRows& a = first.replicas[0][0];
  const SequenceRows& b = second.replicas[0][0];
  EXPECT_THAT(a.token_ids, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(a.context, 5);
  EXPECT_EQ(a.page_table.size(), 2U);
  EXPECT_THAT(b.token_ids, ElementsAre(5, 6));
  EXPECT_EQ(b.context, 7);
  EXPECT_EQ(b.page_table, a.page_table);
  EXPECT_EQ(b.slot, a.slot);
  EXPECT_EQ(first.plan.step + 1, second.plan.step);
  EXPECT_THAT(first.plan.counts[0].logit_rows, ElementsAre());
  EXPECT_THAT(second.plan.counts[0].logit_rows, ElementsAre(1));
}

// A step's rows go on where those of the step before ended; a scheduler that gets none back copies all anew.
TEST(Scheduler, RowsThatAreKeptFromStepToStepAreThoseOfAFreshStep) {
  SchedulerLimits limits = roomy();
  limits.shape.num_replicas = 2;
  limits.pages_per_replica = 24;  // so few that sequences are preempted and pages evicted
  limits.prefix_cache = PrefixCache::kOn;
  Scheduler keeping(limits), fresh(limits);
  RequestId last_id = 0;
  uint64_t draw = 0;
  for (int step = 0; step < 600; ++step) {
    for (uint64_t i = 0; i < mix64(++draw) % 3 && last_id < 400; ++i) {
      const auto length = static_cast<int>(1 + mix64(++draw) % 40);
      ++last_id;
      keeping.add(prompt_of(last_id, length));
      fresh.add(prompt_of(last_id, length));
    }
    std::optional<StepInput> kept = keeping.next();
    const std::optional<StepInput> other = fresh.next();
    ASSERT_EQ(kept.has_value(), other.has_value());
    if (!kept) continue;
    keeping.commit();
    fresh.commit();
    ASSERT_EQ(kept->plan.hash, other->plan.hash);
    for (size_t replica = 0; replica < kept->replicas.size(); ++replica) {
      ASSERT_EQ(kept->replicas[replica].size(), other->replicas[replica].size());
      for (size_t i = 0; i < kept->replicas[replica].size(); ++i) {
        const SequenceRows& is = kept->replicas[replica][i];
        const SequenceRows& should_be = other->replicas[replica][i];
        ASSERT_EQ(is.id, should_be.id);
        ASSERT_EQ(is.token_ids, should_be.token_ids);
        ASSERT_EQ(is.page_table, should_be.page_table) << "request " << is.id << " in step " << step;
        if (keeping.sequence(is.id).num_pending() > 0) continue;
        if (keeping.sequence(is.id).num_tokens() >= 60 || mix64(++draw) % 12 == 0) {
          keeping.remove(is.id);
          fresh.remove(is.id);
        } else {
          const auto token = static_cast<int32_t>(mix64(++draw) % 3);
          keeping.append(is.id, token);
          fresh.append(is.id, token);
        }
      }
    }
    keeping.recycle(*std::move(kept));
  }
  EXPECT_GT(keeping.num_preemptions(), 0U);
  EXPECT_GT(keeping.prefix_counts().hit, 0U);
  EXPECT_EQ(last_id, 400U);
}

// contract: schedule.cheapest-replica
TEST(Scheduler, ChoosesTheLeastLoadedReplicaByTokens) {
  SchedulerLimits limits = roomy();
  limits.shape.num_replicas = 3;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 5));  // 5 0 0
  scheduler.add(prompt_of(2, 2));  // 5 2 0: ties go to the smaller index
  scheduler.add(prompt_of(3, 3));  // 5 2 3
  scheduler.add(prompt_of(4, 2));  // 5 4 3
  scheduler.add(prompt_of(5, 1));  // 5 4 4
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPP+", "2:PP+ 4:PP+", "3:PPP+ 5:P+"));
  // Each has a token more now: 6, 6 and 6.
  NewSequence pinned = prompt_of(6, 9);
  pinned.replica = 2;
  scheduler.add(std::move(pinned));
  scheduler.remove(1);
  scheduler.add(prompt_of(7, 1));
  EXPECT_THAT(play(scheduler), ElementsAre("7:P+", "2:D+ 4:D+", "3:D+ 5:D+ 6:PPPPPPPPP+"));
}

// contract: schedule.idle-replicas
TEST(Scheduler, AReplicaWithNothingTakesPartWithZeroRows) {
  SchedulerLimits limits = roomy();
  limits.shape.num_replicas = 2;
  limits.shape.ranks_per_replica = 2;
  Scheduler scheduler(limits);
  NewSequence pinned = prompt_of(1, 3);
  pinned.replica = 1;
  scheduler.add(std::move(pinned));
  const StepInput input = *scheduler.next();
  ASSERT_EQ(input.replicas.size(), 2U);
  EXPECT_TRUE(input.replicas[0].empty());
  EXPECT_EQ(input.plan.counts[0].num_target_rows, 0);
  EXPECT_THAT(input.plan.padded_rows, ElementsAre(0, 4));
  EXPECT_THAT(input.plan.rows_per_home, ElementsAre(0, 0, 2, 2));
}

// contract: schedule.turns
TEST(Scheduler, EnginesLimitOnRunningRequestsGoesToTheOldest) {
  SchedulerLimits limits = roomy();
  limits.shape.num_replicas = 2;
  limits.max_running_requests = 2;
  Scheduler scheduler(limits);
  for (RequestId id = 1; id <= 4; ++id) scheduler.add(prompt_of(id, 2));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PP+", "2:PP+"));
  EXPECT_EQ(scheduler.replica_stats(0).queued, 1);
  scheduler.remove(2);
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 3:PP+", "")) << "3 is older than 4, which waits where 2 ran";
}

// contract: schedule.moves-waiting
TEST(Scheduler, AWaitingSequenceMovesToAReplicaThatCanStartItNow) {
  SchedulerLimits limits = roomy();
  limits.shape.num_replicas = 2;
  limits.shape.capacity.max_requests = 1;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 9));
  scheduler.add(prompt_of(2, 4));
  scheduler.add(prompt_of(3, 4));  // to replica 1, behind 2
  scheduler.add(prompt_of(4, 2));  // 9 and 8: to replica 1
  play(scheduler);
  EXPECT_EQ(scheduler.replica_stats(1).queued, 2);
  scheduler.remove(1);
  EXPECT_THAT(play(scheduler), ElementsAre("3:PPPP+", "2:D+")) << "replica 0 would idle otherwise";
  EXPECT_EQ(scheduler.replica_stats(1).queued, 1) << "replica 0 is full again";
}

TEST(Scheduler, ASequenceThatNamedItsReplicaStaysThere) {
  SchedulerLimits limits = roomy();
  limits.shape.num_replicas = 2;
  limits.shape.capacity.max_requests = 1;
  Scheduler scheduler(limits);
  for (RequestId id = 1; id <= 2; ++id) {
    NewSequence pinned = prompt_of(id, 4);
    pinned.replica = 1;
    scheduler.add(std::move(pinned));
  }
  EXPECT_THAT(play(scheduler), ElementsAre("", "1:PPPP+"));
  EXPECT_EQ(scheduler.replica_stats(1).queued, 1);
}

// contract: step.within-capacity
TEST(Scheduler, DecodeRowsComeFirstAndPromptsTakeTheRowsThatAreLeft) {
  SchedulerLimits limits = roomy();
  limits.shape.ranks_per_replica = 2;
  limits.shape.capacity = {.max_requests = 4, .max_rows = 6, .max_decode_rows = 4, .max_logit_rows = 4};
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 1));
  scheduler.add(prompt_of(2, 1));
  EXPECT_THAT(play(scheduler), ElementsAre("1:P+ 2:P+"));
  scheduler.add(prompt_of(3, 9));
  scheduler.add(prompt_of(4, 9));
  scheduler.add(prompt_of(5, 9));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+ 3:PPPP"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+ 3:PPPP"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+ 3:P+ 4:PPP"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+ 3:D+ 4:PPP"));
}

// contract: step.wanted-logits
TEST(Scheduler, ScoredPromptsTakeChunksThatTheLogitRowsAllow) {
  SchedulerLimits limits = roomy();
  limits.shape.capacity = {.max_requests = 3, .max_rows = 16, .max_decode_rows = 4, .max_logit_rows = 4};
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 2));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PP+"));
  NewSequence scored = prompt_of(2, 7);
  scored.prompt_logits = WantedLogits::kAll;
  scheduler.add(std::move(scored));
  scheduler.add(prompt_of(3, 5));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:PPP* 3:PPPP"))
      << "the last row of 3 would want a fifth logit row";
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:PPP*"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:P* 3:P+"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+ 3:D+"));
}

// contract: cache.youngest-preempted
TEST(Scheduler, TheYoungestGivesUpItsPagesAndIsComputedAgain) {
  SchedulerLimits limits = roomy();
  limits.pages_per_replica = 4;  // 16 tokens
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 7));
  scheduler.add(prompt_of(2, 6));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPPPP+ 2:PPPPPP+"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+"));
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 4);
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+")) << "the ninth token of 1 needs a page";
  EXPECT_EQ(scheduler.num_preemptions(), 1U);
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 3);
  EXPECT_EQ(scheduler.replica_stats(0).queued, 1);
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+")) << "2 needs three pages, one is free";
  scheduler.remove(1);
  EXPECT_THAT(play(scheduler), ElementsAre("2:PPPPPPPP+")) << "its prompt and the two tokens drawn so far";
  EXPECT_THAT(play(scheduler), ElementsAre("2:D+"));
}

// contract: cache.youngest-preempted
TEST(Scheduler, TheYoungestPreemptsItselfWhenItIsTheOneInNeed) {
  SchedulerLimits limits = roomy();
  limits.pages_per_replica = 4;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 5));
  scheduler.add(prompt_of(2, 7));
  play(scheduler);
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+")) << "the ninth token of 2 needs a page";
  EXPECT_EQ(scheduler.num_preemptions(), 1U);
}

// A scored prompt that is computed again lets a younger sequence begin beside it. That one's growth then
// takes the pages that the older one still needs, and its decode row, already planned, is taken out of the
// step again.
TEST(Scheduler, AnOlderPromptTakesThePagesOfAYoungerDecode) {
  SchedulerLimits limits = roomy();
  limits.pages_per_replica = 5;
  limits.shape.capacity.max_requests = limits.shape.capacity.max_logit_rows = 2;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 2));
  NewSequence scored = prompt_of(2, 14);
  scored.prompt_logits = WantedLogits::kAll;
  scheduler.add(std::move(scored));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PP+ 2:P*"));
  for (int i = 2; i <= 8; ++i) EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:P*"));
  for (int i = 9; i <= 11; ++i)
    EXPECT_THAT(play(scheduler), ElementsAre("1:D+")) << "2 waits for a third page";
  EXPECT_EQ(scheduler.num_preemptions(), 0U);
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+"));
  EXPECT_EQ(scheduler.num_preemptions(), 1U) << "1 needs a fourth page";
  scheduler.remove(1);
  scheduler.add(prompt_of(3, 3));
  EXPECT_THAT(play(scheduler), ElementsAre("2:PPPPPPPP 3:PPP+")) << "eight positions are scored already";
  for (int i = 1; i <= 4; ++i) EXPECT_THAT(play(scheduler), ElementsAre("3:D+ 2:P*"));
  EXPECT_THAT(play(scheduler), ElementsAre("2:P*")) << "a fourth page for 2, from 3";
  EXPECT_EQ(scheduler.num_preemptions(), 2U);
  EXPECT_THAT(play(scheduler), ElementsAre("2:P*"));
  EXPECT_THAT(play(scheduler), ElementsAre("2:D+"));
  scheduler.remove(2);
  EXPECT_THAT(play(scheduler), ElementsAre("3:PPPPPPPP+"));
}

// contract: cache.youngest-preempted
TEST(Scheduler, ASequenceStartsOnlyInPagesThatNobodyRunningStillNeeds) {
  SchedulerLimits limits = roomy();
  limits.pages_per_replica = 4;
  limits.chunked_prefill_size = 8;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 12));
  scheduler.add(prompt_of(2, 2));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPPPPPP"));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PPPP+")) << "the fourth page is for the token that 1 draws now";
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 3);
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+"));
  scheduler.remove(1);
  EXPECT_THAT(play(scheduler), ElementsAre("2:PP+"));
}

// contract: cache.last-one-fits
TEST(Scheduler, ASequenceMayFillTheWholeCacheAlone) {
  SchedulerLimits limits = roomy();
  limits.pages_per_replica = 2;
  EXPECT_EQ(limits.max_sequence_tokens(), 8);
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 3));
  scheduler.add(prompt_of(2, 3));
  for (int i = 0; i < 5; ++i) play(scheduler);
  EXPECT_EQ(scheduler.sequence(1).num_tokens(), 8);
  EXPECT_THROW(
      {
        (void)scheduler.next();
        scheduler.commit();
        scheduler.append(1, 5);
      },
      Fatal)
      << "whoever draws tokens ends a sequence of 8";
}

// contract: cache.all-returned
TEST(Scheduler, RemovingReturnsPagesAndSlotsWhereverTheSequenceIs) {
  SchedulerLimits limits = roomy();
  limits.pages_per_replica = 4;
  limits.shape.capacity.max_requests = 2;
  Scheduler scheduler(limits);
  for (RequestId id = 1; id <= 4; ++id) scheduler.add(prompt_of(id, 7));
  play(scheduler);
  play(scheduler);
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+"));
  EXPECT_EQ(scheduler.num_preemptions(), 1U);
  scheduler.remove(2);  // preempted
  scheduler.remove(4);  // waiting
  scheduler.remove(1);  // running
  EXPECT_EQ(scheduler.replica_stats(0).pages_used, 0);
  scheduler.remove(3);
  scheduler.check_idle();
  EXPECT_THROW(scheduler.remove(3), Fatal);
}

TEST(Scheduler, AbandoningAStepLeavesSequencesThatCanBeRemoved) {
  Scheduler scheduler(roomy());
  scheduler.add(prompt_of(1, 7));
  ASSERT_TRUE(scheduler.next().has_value());
  EXPECT_THROW(scheduler.remove(1), Fatal) << "it is in the step";
  EXPECT_THROW((void)scheduler.next(), Fatal) << "one step at a time";
  scheduler.abandon();
  scheduler.remove(1);
  scheduler.check_idle();
}

// What a cache of so many pages makes of four sequences until each has 22 tokens: who was preempted, and
// whose rows of which kind stood in every step. Drafts are proposed wherever there is room, and never right.
struct Course {
  std::vector<std::string> steps;
  uint64_t num_preemptions = 0;
  int num_verified = 0;
};

Course course_of(int num_pages, int num_drafts) {
  SchedulerLimits limits = roomy();
  limits.pages_per_replica = num_pages;
  Scheduler scheduler(limits);
  for (RequestId id = 1; id <= 4; ++id) scheduler.add(prompt_of(id, 8 - static_cast<int>(id)));
  Course course;
  while (!scheduler.empty()) {
    std::optional<StepInput> input = scheduler.next();
    scheduler.commit();
    std::string& step = course.steps.emplace_back();
    for (const SequenceRows& rows : input->replicas[0]) {
      const bool is_prompt = rows.kind == RowKind::kPrompt;
      step += fmt::format(" {}{}", rows.id, is_prompt ? std::string(rows.token_ids.size(), 'P') : "D");
      course.num_verified += rows.wanted == WantedLogits::kEach ? 1 : 0;
      const Sequence& sequence = scheduler.sequence(rows.id);
      if (sequence.num_pending() > 0) continue;
      scheduler.append(rows.id, 5);
      if (sequence.num_tokens() == 22) {
        scheduler.remove(rows.id);
      } else if (num_drafts > 0) {
        const int32_t room = scheduler.reserve(rows.id, sequence.num_tokens() + num_drafts);
        const auto num = static_cast<size_t>(std::max(0, room - sequence.num_tokens()));
        scheduler.propose(rows.id, std::vector<int32_t>(num, 9));
      }
    }
    scheduler.check_invariants();
  }
  course.num_preemptions = scheduler.num_preemptions();
  return course;
}

// contract: draft.within-capacity
TEST(Scheduler, NobodyIsPreemptedOrHeldUpForDrafts) {
  uint64_t num_preemptions = 0;
  for (int num_pages = 6; num_pages <= 26; ++num_pages) {
    const Course without = course_of(num_pages, 0);
    num_preemptions += without.num_preemptions;
    for (const int num_drafts : {1, 4, 9}) {
      const Course with = course_of(num_pages, num_drafts);
      EXPECT_EQ(with.num_preemptions, without.num_preemptions) << num_pages << " pages, " << num_drafts;
      EXPECT_EQ(with.steps, without.steps) << num_pages << " pages, " << num_drafts << " drafts";
      EXPECT_GT(with.num_verified, 0) << num_pages << " pages, " << num_drafts << " drafts";
    }
  }
  EXPECT_GT(num_preemptions, 10U);
}

// Two sequences of nine tokens, and six pages: each needs its third for the token drawn last.
// contract: draft.within-capacity
TEST(Scheduler, APageIsTakenBackFromDraftsThatTheStepHasAlready) {
  SchedulerLimits limits = roomy();
  limits.pages_per_replica = 6;
  Scheduler scheduler(limits);
  for (RequestId id = 1; id <= 2; ++id) scheduler.add(prompt_of(id, 8));
  play(scheduler);
  EXPECT_EQ(scheduler.reserve(1, 13), 13) << "a page for the token and one more for drafts";
  scheduler.propose(1, {9, 9, 9, 9});
  EXPECT_THAT(play(scheduler), ElementsAre("1:D+ 2:D+"));
  EXPECT_EQ(scheduler.num_preemptions(), 0U);
}

// contract: step.slot-kept
TEST(Scheduler, SlotsAreUniqueAndReused) {
  SchedulerLimits limits = roomy();
  limits.shape.capacity.max_requests = 2;
  Scheduler scheduler(limits);
  for (RequestId id = 1; id <= 3; ++id) scheduler.add(prompt_of(id, 2));
  play(scheduler);
  EXPECT_EQ(scheduler.sequence(1).slot, 0);
  EXPECT_EQ(scheduler.sequence(2).slot, 1);
  scheduler.remove(1);
  play(scheduler);
  EXPECT_EQ(scheduler.sequence(3).slot, 0);
  EXPECT_EQ(scheduler.sequence(2).slot, 1) << "a slot is kept while a sequence runs";
}

// A request that was held back is as old as it is.
// contract: schedule.turns
TEST(Scheduler, OneThatIsAddedLateKeepsItsAge) {
  SchedulerLimits limits = roomy();
  limits.max_running_requests = 2;
  Scheduler scheduler(limits);
  scheduler.add(prompt_of(1, 2));
  scheduler.add(prompt_of(3, 2));
  scheduler.add(prompt_of(4, 2));
  EXPECT_THAT(play(scheduler), ElementsAre("1:PP+ 3:PP+"));
  scheduler.remove(1);
  scheduler.add(prompt_of(2, 2));
  EXPECT_THAT(play(scheduler), ElementsAre("3:D+ 4:PP+")) << "4 has waited longer";
  scheduler.remove(3);
  EXPECT_THAT(play(scheduler), ElementsAre("4:D+ 2:PP+"));
  EXPECT_THAT(play(scheduler), ElementsAre("2:D+ 4:D+")) << "the oldest first";
}

TEST(Scheduler, ThingsThatOnlyABugCanDo) {
  Scheduler scheduler(roomy());
  scheduler.add(prompt_of(5, 2));
  EXPECT_THROW(scheduler.add(prompt_of(5, 2)), Fatal);
  EXPECT_THROW(scheduler.add(prompt_of(6, 0)), Fatal);
  EXPECT_THROW(scheduler.add(prompt_of(6, 129)), Fatal);
  EXPECT_THROW(scheduler.append(5, 1), Fatal) << "it does not run";
  EXPECT_THROW(scheduler.commit(), Fatal);
  NewSequence outside = prompt_of(7, 2);
  outside.replica = 1;
  EXPECT_THROW(scheduler.add(std::move(outside)), Fatal);
}

TEST(SchedulerLimits, ContradictionsNameTheFlagAndTheNumbers) {
  EXPECT_TRUE(check_limits(roomy()).ok());
  const auto refused = [](auto change, const char* field, const char* says) {
    SchedulerLimits limits = roomy();
    change(limits);
    const Status status = check_limits(limits);
    ASSERT_FALSE(status.ok()) << field;
    EXPECT_EQ(status.error().field, field);
    EXPECT_THAT(status.error().message, HasSubstr(says));
    EXPECT_THROW(Scheduler scheduler(limits), Fatal);
  };
  refused([](auto& l) { l.max_running_requests = 0; }, "--max-running-requests", "0");
  refused([](auto& l) { l.max_queued_requests = -1; }, "--max-queued-requests", "-1");
  refused([](auto& l) { l.chunked_prefill_size = 0; }, "--chunked-prefill-size", "0");
  refused([](auto& l) { l.page_size = 0; }, "--page-size", "0");
  refused([](auto& l) { l.pages_per_replica = 0; }, "--mem-fraction-static", "no page");
  refused([](auto& l) { l.context_length = 0; }, "--context-length", "0");
  refused([](auto& l) { l.shape.ranks_per_replica = 3; }, "--chunked-prefill-size", "64 rows is no multiple");
  refused([](auto& l) { l.shape.capacity.max_requests = 65; }, "--max-running-requests", "65 requests");
  refused([](auto& l) { l.shape.capacity.max_logit_rows = 7; }, "--max-running-requests", "it has 7");
}

TEST(SchedulerLimits, ASequenceIsBoundedByContextAndCache) {
  SchedulerLimits limits = roomy();
  EXPECT_EQ(limits.max_sequence_tokens(), 128);
  limits.pages_per_replica = 31;
  EXPECT_EQ(limits.max_sequence_tokens(), 124);
  limits.pages_per_replica = limits.page_size = 1 << 20;
  EXPECT_EQ(limits.max_sequence_tokens(), 128) << "more tokens than an int32 holds";
  EXPECT_EQ(limits.max_running(), 8);
  limits.max_running_requests = 3;
  EXPECT_EQ(limits.max_running(), 3);
}

}  // namespace
}  // namespace lockstep::runtime
