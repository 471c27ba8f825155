#include "lockstep/runtime/hosts/step_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "lockstep/runtime/executor/rank_executor.h"

namespace lockstep::runtime {
namespace {

using collectives::ByteReader;
using collectives::ByteWriter;
using collectives::WrongBytes;
using ::testing::HasSubstr;

constexpr int32_t kPageSize = 4, kPages = 16;

StepBounds bounds() {
  return {
      .shape = {.num_replicas = 2,
                .ranks_per_replica = 2,
                .capacity = {.max_requests = 4, .max_rows = 16, .max_decode_rows = 8, .max_logit_rows = 8}},
      .page_size = kPageSize,
      .pages_per_replica = kPages,
      .num_slots = 6,
      .vocab = 100};
}

// Replica 0 brings a prompt and a decoding sequence, replica 1 nothing.
StepInput some_step() {
  const StepBounds of = bounds();
  StepInput input;
  input.replicas = {{{.id = 7,
                      .kind = RowKind::kPrompt,
                      .wanted = WantedLogits::kLast,
                      .token_ids = {5, 6, 99},
                      .context = 9,
                      .page_table = {3, 0, 15},
                      .slot = 2,
                      .save_slot = 5},
                     {.id = 8,
                      .kind = RowKind::kDecode,
                      .wanted = WantedLogits::kAll,
                      .use = LogitUse::kLargest,
                      .token_ids = {1},
                      .context = 1,
                      .page_table = {4},
                      .slot = 0,
                      .load_slot = 4}},
                    {}};
  input.num_valid_logits = 90;
  input.plan = planning::make_step_plan(
      41, of.shape, {{.num_requests = 2, .num_target_rows = 4, .logit_rows = {2, 3}}, {}});
  return input;
}

// Memory as a frame has it.
struct Room {
  explicit Room(std::span<const std::byte> from) : bytes(new std::byte[from.size()]), size(from.size()) {
    std::copy(from.begin(), from.end(), bytes.get());
  }
  std::span<std::byte> span() const { return {bytes.get(), size}; }
  std::unique_ptr<std::byte[]> bytes;
  size_t size;
};

Room written(const StepInput& input) {
  ByteWriter writer;
  write_step(input, writer);
  return Room(writer.bytes());
}

StepInput read(const Room& room, const StepBounds& of = bounds()) {
  ByteReader reader(room.span());
  StepInput input = read_step(reader, of);
  reader.expect_end();
  return input;
}

TEST(StepCodec, WhatIsReadIsWhatWasWritten) {
  const StepInput input = some_step(), again = read(written(input));
  EXPECT_EQ(again.plan.step, 41u);
  EXPECT_EQ(again.num_valid_logits, 90);
  EXPECT_EQ(again.plan.hash, input.plan.hash);
  EXPECT_EQ(planning::hash_of(again.plan), planning::hash_of(input.plan));
  ASSERT_EQ(again.replicas.size(), 2u);
  ASSERT_EQ(again.replicas[0].size(), 2u);
  EXPECT_TRUE(again.replicas[1].empty());
  for (size_t at = 0; at < 2; ++at) {
    const SequenceRows &was = input.replicas[0][at], &is = again.replicas[0][at];
    EXPECT_EQ(is.id, was.id);
    EXPECT_EQ(is.kind, was.kind);
    EXPECT_EQ(is.wanted, was.wanted);
    EXPECT_EQ(is.use, was.use);
    EXPECT_EQ(is.token_ids, was.token_ids);
    EXPECT_EQ(is.context, was.context);
    EXPECT_EQ(is.page_table, was.page_table);
    EXPECT_EQ(is.slot, was.slot);
    EXPECT_EQ(is.load_slot, was.load_slot);
    EXPECT_EQ(is.save_slot, was.save_slot);
  }
}

// Two drafts of replica 1, whose rows follow the third and the first of those that were kept.
StepInput some_drafts() {
  const auto draft = [](RequestId id, int32_t token) {
    return SequenceRows{.id = id,
                        .kind = RowKind::kDecode,
                        .token_ids = {token},
                        .context = 1,
                        .page_table = {static_cast<int32_t>(id)},
                        .slot = static_cast<int32_t>(id)};
  };
  StepInput input;
  input.replicas = {{}, {draft(1, 11), draft(2, 12)}};
  input.kept_rows = {{}, {2, 0}};
  input.plan = planning::make_step_plan(42, bounds().shape,
                                        {{}, {.num_requests = 2, .num_draft_rows = 2, .logit_rows = {0, 1}}},
                                        planning::Forward::kDraft);
  return input;
}

TEST(StepCodec, DraftsAreReadAsTheyWereWritten) {
  const StepInput input = some_drafts(), again = read(written(input));
  EXPECT_EQ(again.plan.forward, planning::Forward::kDraft);
  EXPECT_EQ(again.plan.hash, input.plan.hash);
  EXPECT_EQ(again.kept_rows, input.kept_rows);
  EXPECT_EQ(again.replicas[1][1].token_ids, input.replicas[1][1].token_ids);
  const auto refused = [](const std::function<void(StepInput&)>& change, const char* words) {
    StepInput wrong = some_drafts();
    change(wrong);
    try {
      read(written(wrong));
      ADD_FAILURE() << words;
    } catch (const WrongBytes& failure) {
      EXPECT_THAT(failure.what(), HasSubstr(words));
    }
  };
  refused([](StepInput& wrong) { wrong.kept_rows[1][0] = 16; }, "kept row 16");
  refused([](StepInput& wrong) { wrong.kept_rows[1][0] = -1; }, "kept row -1");
  refused([](StepInput& wrong) { wrong.kept_rows[1].pop_back(); }, "1 kept rows of replica 1 where 2");
  refused([](StepInput& wrong) { wrong.kept_rows.pop_back(); }, "kept rows of 1 replicas in a draft step");
  refused([](StepInput& wrong) { wrong.plan.counts[1].logit_rows = {0, 2}; }, "wanted row 2");
}

TEST(StepCodec, WarmUpStepsPassToo) {
  const StepBounds of = bounds();
  const StepInput input = warm_up_step(of.shape, std::vector<WarmUpSequence>(4, {.context = 9}),
                                       {.page_size = kPageSize, .per_replica = kPages});
  EXPECT_EQ(read(written(input)).plan.hash, input.plan.hash);
}

TEST(StepCodec, APlanOfOtherShapeIsNamed) {
  StepBounds other = bounds();
  other.shape.capacity.max_decode_rows = 2;  // the head decodes, this process would not
  try {
    read(written(some_step()), other);
    FAIL() << "the plans differ";
  } catch (const Fatal& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("the head's plan of step 41 is not this process's: the regime is"));
  }
}

TEST(StepCodec, WhatLeavesTheLimitsIsRefused) {
  const auto refused = [](const std::function<void(StepInput&)>& change, const char* words) {
    StepInput input = some_step();
    change(input);
    try {
      read(written(input));
      ADD_FAILURE() << words;
    } catch (const WrongBytes& failure) {
      EXPECT_THAT(failure.what(), HasSubstr(words));
    }
  };
  refused([](StepInput& input) { input.replicas[0][0].token_ids[1] = 100; },
          "token 100 is not between 0 and 99");
  refused([](StepInput& input) { input.replicas[0][0].token_ids[1] = -1; }, "token -1");
  refused([](StepInput& input) { input.replicas[0][0].page_table[2] = kPages; }, "page 16");
  refused([](StepInput& input) { input.replicas[0][0].page_table.pop_back(); }, "2 pages for a context of 9");
  refused([](StepInput& input) { input.replicas[0][0].context = 2; }, "context 2 is not between 3 and 64");
  refused([](StepInput& input) { input.replicas[0][0].slot = 4; }, "slot 4");
  refused([](StepInput& input) { input.replicas[0][0].save_slot = 6; }, "slot to save 6");
  refused([](StepInput& input) { input.replicas[0].pop_back(); }, "3 rows of replica 0 where 4 are counted");
  refused([](StepInput& input) { input.replicas.emplace_back(); }, "3 replicas, at most 2");
  refused([](StepInput& input) { input.replicas.pop_back(); }, "1 replicas, not 2");
  refused([](StepInput& input) { input.plan.counts[0].num_requests = 5; }, "requests 5");
  refused([](StepInput& input) { input.plan.counts[0].num_target_rows = 17; }, "rows 17");
  refused([](StepInput& input) { input.plan.counts[0].logit_rows = {3, 2}; }, "out of order");
  refused([](StepInput& input) { input.plan.counts[0].logit_rows = {4}; }, "wanted row 4");
  refused([](StepInput& input) { input.plan.regime = static_cast<planning::Regime>(9); }, "regime 9");
  refused([](StepInput& input) { input.replicas[0][0].kind = static_cast<RowKind>(7); }, "kind of row 7");
}

// Any bytes at all end in an error or in a step within the limits.
TEST(StepCodec, HostileBytesAreRefused) {
  const Room whole = written(some_step());
  std::mt19937 random(11);
  for (int round = 0; round < 4000; ++round) {
    const size_t size = round % 2 == 0 ? whole.size : random() % whole.size;
    Room bytes(whole.span().first(size));
    for (unsigned flips = random() % 4; size > 0 && flips > 0; --flips)
      bytes.bytes[random() % size] = static_cast<std::byte>(random());
    try {
      const StepInput input = read(bytes);
      for (const auto& sequences : input.replicas)
        for (const SequenceRows& rows : sequences) {
          EXPECT_LE(std::ssize(rows.token_ids), rows.context);
          EXPECT_LE(rows.context, std::ssize(rows.page_table) * kPageSize);
        }
    } catch (const WrongBytes& failure) {
      EXPECT_NE(std::strlen(failure.what()), 0u);
    } catch (const Fatal& failure) {
      EXPECT_NE(std::strlen(failure.what()), 0u);
    }
  }
}

}  // namespace
}  // namespace lockstep::runtime
