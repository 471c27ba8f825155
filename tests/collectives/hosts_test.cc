#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>

#include "lockstep/collectives/hosts/bytes.h"
#include "lockstep/collectives/hosts/joining.h"
#include "lockstep/collectives/hosts/rank_messages.h"
#include "tests/collectives/on_ranks.h"

namespace lockstep::collectives::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

void sum(Communicator& communicator, AxisSet over, const Tag& tag) {
  std::vector<float> in = {1, 2}, out = {0, 0};
  communicator.all_reduce({.in = view_of(in.data(), {1, 2}), .out = view_of(out.data(), {1, 2})}, over, tag);
}

TEST(SeveralProcesses, StayInStepInOverlappingGroups) {
  const auto grid = grid_of(8, 2, 1, 4);
  for (const int processes : {2, 4, 8})
    on_all_ranks(
        grid,
        [&](int rank, Communicator& communicator) {
          for (uint32_t step = 0; step < 100; ++step) {
            const AxisSet over(step % grid.all().bits() + 1);
            float in = static_cast<float>(rank + step), out = 0;
            communicator.all_reduce({.in = view_of(&in, {1, 1}), .out = view_of(&out, {1, 1})}, over,
                                    {step, 0, "test"});
            float expected = 0;
            for (const int member : grid.group(rank, over)) expected += static_cast<float>(member + step);
            ASSERT_EQ(out, expected);
          }
        },
        processes);
}

// Sums in an order of their own would differ in the last bits.
TEST(SeveralProcesses, SumInRankOrder) {
  const auto grid = grid_of(8, 8);
  constexpr int64_t kWidth = 257;
  std::vector<std::vector<float>> results;
  for (const int processes : {1, 2, 4}) {
    std::vector<float> kept(kWidth);
    on_all_ranks(
        grid,
        [&](int rank, Communicator& communicator) {
          std::mt19937 random(static_cast<uint32_t>(rank));
          std::vector<float> in(kWidth), out(kWidth);
          for (float& value : in)
            value = static_cast<float>(random()) / 3.0f * (rank % 2 == 0 ? 1.0f : -1e-3f);
          communicator.all_reduce(
              {.in = view_of(in.data(), {1, kWidth}), .out = view_of(out.data(), {1, kWidth})}, grid.all(),
              {1, 1, "test"});
          if (rank == 5) kept = out;
        },
        processes);
    results.push_back(kept);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(SeveralProcesses, ARankThatIsMissingIsNamedInEveryProcess) {
  const auto grid = grid_of(4, 4);
  const auto errors = on_ranks(
      grid, {.deadline = milliseconds(300)},
      [&](int rank, Communicator& communicator) {
        if (rank != 2) sum(communicator, grid.all(), {77, 5, "all_reduce on the edge a -> b"});
      },
      2);
  for (const int rank : {0, 1, 3})
    EXPECT_THAT(errors[static_cast<size_t>(rank)],
                AllOf(HasSubstr("step 5 of engine step 77"), HasSubstr("a -> b"), HasSubstr("rank 2")));
}

TEST(SeveralProcesses, DifferentStepsAreAnErrorWithBothNames) {
  const auto grid = grid_of(2, 2);
  const auto errors = on_ranks(
      grid, {},
      [&](int rank, Communicator& communicator) {
        sum(communicator, grid.all(), {1, rank == 0 ? 4u : 6u, rank == 0 ? "the gather" : "the sum"});
      },
      2);
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("the gather"), HasSubstr("the sum"))));
}

TEST(SeveralProcesses, RowsThatDisagreeAreAnErrorNotAWrongSum) {
  const auto grid = grid_of(2, 2);
  for (const auto& shape : {std::pair<int64_t, int64_t>{2, 1}, {1, 2}}) {
    const auto errors = on_ranks(
        grid, {},
        [&](int rank, Communicator& communicator) {
          const int64_t own_rows = rank == 0 ? shape.first : 1, own_cols = rank == 0 ? shape.second : 1;
          std::vector<float> in(4), out(4);
          communicator.all_reduce({.in = view_of(in.data(), {own_rows, own_cols}),
                                   .out = view_of(out.data(), {own_rows, own_cols})},
                                  grid.all(), {1, 1, "test"});
        },
        2);
    EXPECT_THAT(errors, Each(HasSubstr("against")));
  }
}

TEST(SeveralProcesses, OneRanksFailureEndsEveryWait) {
  const auto grid = grid_of(8, 2);
  const auto errors = on_ranks(
      grid, {},
      [&](int rank, Communicator& communicator) {
        if (rank == 3) throw Fatal("rank 3 is out of cheese");
        sum(communicator, grid.all(), {1, 1, "test"});
      },
      4);
  EXPECT_THAT(errors, Each(HasSubstr("rank 3 is out of cheese")));
}

// The process of rank 1 closes its connections without a word, as one that is killed does.
TEST(SeveralProcesses, AProcessThatIsGoneIsNamedAtOnce) {
  const auto grid = grid_of(2, 2);
  const auto listener = TcpListener::open("127.0.0.1", 0);
  std::map<int, TcpStream> streams;
  streams.emplace(1, connect_to("127.0.0.1", listener->port(), milliseconds(5000)).value());
  std::optional<TcpStream> other = listener->accept_until(Clock::now() + milliseconds(5000));
  const auto links = std::make_shared<Links>(
      Links::Options{.num_processes = 2, .own = 0, .num_ranks = 2, .silence = milliseconds(30000)},
      std::move(streams));
  InProcessWorld world(grid, {.links = links});
  const auto start = Clock::now();
  std::jthread killer([&] { other.reset(); });
  const auto kernels = kernels::make_cpu_kernels();
  const auto communicator = world.communicator(0, *kernels);
  try {
    sum(*communicator, grid.all(), {1, 1, "test"});
    FAIL() << "nobody was there";
  } catch (const Fatal& failure) {
    EXPECT_THAT(failure.what(), AllOf(HasSubstr("process 1 (rank 1 at 127.0.0.1) is gone")));
  }
  EXPECT_LT(Clock::now() - start, milliseconds(10000));
}

// One that is stopped, or whose cable is cut, closes nothing.
TEST(SeveralProcesses, AProcessThatSaysNothingIsGivenUp) {
  const auto grid = grid_of(2, 2);
  const auto listener = TcpListener::open("127.0.0.1", 0);
  std::map<int, TcpStream> streams;
  streams.emplace(1, connect_to("127.0.0.1", listener->port(), milliseconds(5000)).value());
  const auto other = listener->accept_until(Clock::now() + milliseconds(5000));
  const auto links = std::make_shared<Links>(
      Links::Options{.num_processes = 2, .own = 0, .num_ranks = 2, .silence = milliseconds(300)},
      std::move(streams));
  InProcessWorld world(grid, {.links = links});
  const auto kernels = kernels::make_cpu_kernels();
  const auto communicator = world.communicator(0, *kernels);
  try {
    sum(*communicator, grid.all(), {1, 1, "test"});
    FAIL() << "nobody said anything";
  } catch (const Fatal& failure) {
    EXPECT_THAT(failure.what(), AllOf(HasSubstr("process 1"), HasSubstr("has said nothing for"),
                                      HasSubstr("--host-timeout")));
  }
}

// What a stranger, or a fault, could send instead of a message between ranks.
TEST(SeveralProcesses, MessagesThatAreNoneEndTheEngineNotTheProcess) {
  const auto grid = grid_of(2, 2);
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const auto links = linked(2, 2);
    InProcessWorld world(grid, {.links = links[0]});
    std::vector<float> in(6);
    const AllReduceArgs args{.in = view_of(in.data(), {2, 3}), .out = view_of(in.data(), {2, 3})};
    RankMessage message({.group = 0, .rank = 1}, {1, 1, "test"}, Verb::kAllReduce);
    add_args(message, args, {});
    std::vector<std::byte> bytes;
    for (const auto& part : message.parts()) bytes.insert(bytes.end(), part.begin(), part.end());
    if (round < 30) {
      bytes.resize(random() % bytes.size());
    } else {  // not the numbers themselves, which may be any
      bytes[random() % (bytes.size() - sizeof(float) * in.size())] ^= std::byte{0xff};
    }
    const std::span<const std::byte> part = bytes;
    links[1]->send(0, FrameKind::kRows, {&part, 1});
    const auto kernels = kernels::make_cpu_kernels();
    const auto communicator = world.communicator(0, *kernels);
    std::vector<float> own(6, 1.0f), out(6);
    const auto meet = [&] {
      communicator->all_reduce({.in = view_of(own.data(), {2, 3}), .out = view_of(out.data(), {2, 3})},
                               grid.all(), {1, 1, "test"});
    };
    // A changed letter of the words that only people read is no fault.
    try {
      meet();
      EXPECT_EQ(out, own) << "round " << round;
    } catch (const Fatal& failure) {
      EXPECT_NE(std::string(failure.what()), "");
    }
  }
}

TEST(RankMessages, CarryOnlyTheSlotsOfWhoReads) {
  // Three members; of the second and third, four entries hold slots of ours.
  Dispatched dispatched(host_memory());
  std::vector<int32_t> slots0 = {0, 1}, slots1 = {-1, 3}, slots2 = {4, 2};
  for (auto* slots : {&slots0, &slots1, &slots2})
    dispatched.slot_of.push_back(view_of(slots->data(), {1, 2}));
  std::vector<float> y = {0, 0, 10, 11, 20, 21, 30, 31, 40, 41};
  const CombineArgs args{.dispatched = &dispatched, .y = view_of(y.data(), {5, 2})};
  RankMessage message({.group = 3, .rank = 0}, {9, 8, "combine"}, Verb::kCombine);
  add_args(message, args, {.first = 1, .num = 2});
  Frame frame{.kind = FrameKind::kRows};
  const Parts parts = message.parts();
  for (const auto& part : parts) frame.size += part.size();
  frame.bytes = std::make_unique<std::byte[]>(frame.size);
  auto* at = frame.bytes.get();
  for (const auto& part : parts) at = std::copy(part.begin(), part.end(), at);

  const auto received = read_rank_message(std::move(frame), [](uint32_t group) {
    EXPECT_EQ(group, 3u);
    return size_t{3};
  });
  EXPECT_EQ(received.head.rank, 0u);
  EXPECT_EQ(received.from_afar.engine_step, 9u);
  EXPECT_EQ(received.from_afar.what, "combine");
  ASSERT_EQ(received.from_afar.shown->verb, Verb::kCombine);
  const auto& shown = static_cast<const Shown<CombineArgs>&>(*received.from_afar.shown).args;
  ASSERT_EQ(shown.y.rows(), 3);
  const auto row_of = [&](size_t member, int64_t entry) -> std::vector<float> {
    const int32_t slot = shown.dispatched->slot_of[member].as<int32_t>()[entry];
    if (slot < 0) return {};
    const float* row = shown.y.as<float>() + slot * shown.y.stride[0];
    return {row, row + 2};
  };
  EXPECT_EQ(shown.dispatched->slot_of[0].rows(), 0);
  EXPECT_EQ(row_of(1, 0), (std::vector<float>{}));
  EXPECT_EQ(row_of(1, 1), (std::vector<float>{30, 31}));
  EXPECT_EQ(row_of(2, 0), (std::vector<float>{40, 41}));
  EXPECT_EQ(row_of(2, 1), (std::vector<float>{20, 21}));
}

TEST(Bytes, ReadersTakeNothingBeyondTheEnd) {
  ByteWriter writer;
  writer.put<int32_t>(5);
  writer.put_text("seven");
  writer.put_array(std::span<const int32_t>(std::array{1, 2, 3}));
  alignas(kArrayAlignment) std::array<std::byte, 128> room{};
  const auto written = writer.bytes();
  std::copy(written.begin(), written.end(), room.begin());
  const std::span<std::byte> all(room.data(), written.size());
  ByteReader whole(all);
  EXPECT_EQ(whole.get<int32_t>(), 5);
  EXPECT_EQ(whole.get_text(5), "seven");
  EXPECT_THAT(whole.get_array<int32_t>(3), ::testing::ElementsAre(1, 2, 3));
  EXPECT_NO_THROW(whole.expect_end());
  for (size_t size = 0; size < written.size(); ++size) {
    ByteReader cut(all.first(size));
    EXPECT_THROW(
        {
          cut.get<int32_t>();
          cut.get_text(5);
          cut.get_array<int32_t>(3);
        },
        WrongBytes)
        << size << " bytes";
  }
  ByteReader strict(all);
  strict.get<int32_t>();
  EXPECT_THROW(strict.get_text(4), WrongBytes);
}

// Everyone's part in joining, on threads.
class Join : public ::testing::Test {
 protected:
  HostPlace place(int num, int index) const {
    return {.num = num,
            .index = index,
            .coordinator = "127.0.0.1",
            .port = port_,
            .patience = milliseconds(2500),
            .silence = milliseconds(30000)};
  }
  static Passport passport(int ranks) {
    return {.same = {{"build", "b1"}, {"model", "m1"}, {"--tp-size", std::to_string(ranks)}},
            .num_ranks = ranks,
            .capacities = {100, 7}};
  }
  static int free_port() { return TcpListener::open("127.0.0.1", 0)->port(); }
  static std::vector<Result<Joined>> all(const std::vector<HostPlace>& places,
                                         const std::vector<Passport>& passports) {
    std::vector<std::optional<Result<Joined>>> found(places.size());
    {
      std::vector<std::jthread> threads;
      for (size_t at = 0; at < places.size(); ++at)
        threads.emplace_back([&, at] { found[at].emplace(join(places[at], passports[at], {})); });
    }
    std::vector<Result<Joined>> results;
    for (auto& one : found) results.push_back(*std::move(one));
    return results;
  }
  const int port_ = free_port();
};

TEST_F(Join, EveryTwoAreLinkedAndTheLeastCapacityCounts) {
  std::vector<HostPlace> places;
  std::vector<Passport> passports;
  for (const int index : {3, 1, 0, 2}) {
    places.push_back(place(4, index));
    passports.push_back(passport(8));
    passports.back().capacities = {100 - index, 7 + index};
  }
  const auto joined = all(places, passports);
  struct User final : LinkUser {
    std::atomic<int> frames{0};
    void on_frame(int, Frame) override { ++frames; }
    void on_failure(const std::string&) override {}
  };
  std::vector<User> users(4);
  for (size_t at = 0; at < 4; ++at) {
    ASSERT_TRUE(joined[at]) << joined[at].error().message;
    EXPECT_EQ(joined[at]->capacities, (std::vector<int64_t>{97, 7}));
    joined[at]->links->attach(FrameKind::kWork, users[at]);
  }
  for (const auto& one : joined)
    for (int other = 0; other < 4; ++other)
      if (other != one->links->own()) one->links->send(other, FrameKind::kWork, {});
  for (int round = 0; round < 1000; ++round) {
    if (std::all_of(users.begin(), users.end(), [](const User& user) { return user.frames == 3; })) break;
    std::this_thread::sleep_for(milliseconds(5));
  }
  for (size_t at = 0; at < 4; ++at) {
    EXPECT_EQ(users[at].frames, 3);
    joined[at]->links->detach(FrameKind::kWork);
  }
}

// A process may be ready before the one that it speaks to.
TEST_F(Join, WhatComesBeforeItsUserIsKeptInOrder) {
  const auto joined = all({place(2, 0), place(2, 1)}, {passport(4), passport(4)});
  struct User final : LinkUser {
    std::mutex mutex;
    std::vector<size_t> sizes;
    std::string failure;
    void on_frame(int process, Frame frame) override {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(process, 1);
      sizes.push_back(frame.size);
    }
    void on_failure(const std::string& reason) override {
      const std::lock_guard lock(mutex);
      failure = reason;
    }
    bool has(size_t num) {
      for (int round = 0; round < 1000; ++round) {
        {
          const std::lock_guard lock(mutex);
          if (sizes.size() >= num || !failure.empty()) return failure.empty();
        }
        std::this_thread::sleep_for(milliseconds(5));
      }
      return false;
    }
  } rows, work;
  ASSERT_TRUE(joined[0]);
  ASSERT_TRUE(joined[1]);
  Links &head = *joined[0]->links, &other = *joined[1]->links;
  head.attach(FrameKind::kRows, rows);
  const std::vector<std::byte> bytes(3);
  const auto send = [&](FrameKind kind, size_t size) {
    const auto part = std::span<const std::byte>(bytes).first(size);
    other.send(0, kind, {&part, 1});
  };
  for (const size_t size : {1, 2, 3}) send(FrameKind::kWork, size);
  send(FrameKind::kRows, 0);
  ASSERT_TRUE(rows.has(1)) << rows.failure;  // so the others have come too
  head.attach(FrameKind::kWork, work);
  EXPECT_EQ(work.sizes, (std::vector<size_t>{1, 2, 3}));
  send(FrameKind::kWork, 2);
  EXPECT_TRUE(work.has(4));
  head.detach(FrameKind::kWork);
  head.detach(FrameKind::kRows);
}

TEST_F(Join, WhoIsMissingIsNamed) {
  std::vector<HostPlace> places = {place(4, 0), place(4, 2)};
  places[0].patience = milliseconds(500);
  const auto joined = all(places, {passport(4), passport(4)});
  for (const auto& one : joined) {
    ASSERT_FALSE(one);
    EXPECT_THAT(one.error().message, AllOf(HasSubstr("processes 1, 3 did not come"), HasSubstr("0.5 s"),
                                           HasSubstr("2 of 4 are here")));
  }
}

TEST_F(Join, ADifferenceIsToldWithBothValuesToBoth) {
  std::vector<Passport> passports = {passport(4), passport(4)};
  passports[1].same[1].second = "m2";
  const auto joined = all({place(2, 0), place(2, 1)}, passports);
  for (const auto& one : joined) {
    ASSERT_FALSE(one);
    EXPECT_THAT(one.error().message, HasSubstr("model is m2 in process 1 at 127.0.0.1 and m1 in the head"));
  }
}

TEST_F(Join, NumbersOfProcessesMustFit) {
  auto joined = all({place(2, 0), place(3, 1)}, {passport(6), passport(6)});
  ASSERT_FALSE(joined[0]);
  EXPECT_THAT(joined[0].error().message,
              HasSubstr("--hosts is 3 in the process at 127.0.0.1 and 2 in the head"));
  joined = all({place(3, 0), place(3, 1), place(3, 1)}, {passport(6), passport(6), passport(6)});
  ASSERT_FALSE(joined[0]);
  EXPECT_THAT(joined[0].error().message, HasSubstr("two processes say that they are number 1"));
}

TEST_F(Join, AHeadThatIsNotThereIsGivenUp) {
  HostPlace alone = place(2, 1);
  alone.patience = milliseconds(500);
  const auto joined = join(alone, passport(2), {});
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, AllOf(HasSubstr("the head did not answer within 0.5 s"),
                                            HasSubstr("127.0.0.1 port " + std::to_string(port_))));
  EXPECT_EQ(joined.error().field, "--coordinator");
}

TEST_F(Join, AnInterruptEndsTheWait) {
  const std::atomic<int> interrupted{2};
  for (const int index : {0, 1}) {
    HostPlace waiting = place(2, index);
    waiting.interrupted = &interrupted;
    const auto joined = join(waiting, passport(2), {});
    ASSERT_FALSE(joined);
    EXPECT_THAT(joined.error().message, HasSubstr("interrupted"));
  }
}

// What the head will do next is told to those whom it refuses, and to nobody who was refused for good.
TEST_F(Join, WhoIsRefusedKnowsWhetherTheHeadWaitsOnceMore) {
  for (const bool waits : {false, true}) {
    std::vector<HostPlace> places = {place(3, 0), place(3, 1)};
    places[0].patience = milliseconds(500);
    places[0].waits_again = [waits] { return waits; };
    const auto joined = all(places, {passport(3), passport(3)});
    ASSERT_FALSE(joined[1]);
    EXPECT_THAT(joined[1].error().message, HasSubstr("process 2 did not come"));
    EXPECT_EQ(joined[1].error().code, waits ? ErrorCode::kAborted : ErrorCode::kUnavailable);
  }
}

TEST_F(Join, AHeadThatIsInterruptedEndsTheWaitOfOthers) {
  std::atomic<int> interrupted{0};
  HostPlace head = place(3, 0);
  head.patience = milliseconds(60000);
  head.interrupted = &interrupted;
  head.waits_again = [] { return true; };
  std::jthread waiting([&] {
    EXPECT_FALSE(join(head, passport(3), [&](std::string_view line) {
      if (line.find("process 1 of 3 is here") != std::string_view::npos) interrupted = 2;
    }));
  });
  HostPlace guest = place(3, 1);
  guest.patience = milliseconds(60000);
  const auto begin = Clock::now();
  const auto joined = join(guest, passport(3), {});
  EXPECT_LT(Clock::now() - begin, milliseconds(20000));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(joined.error().message, HasSubstr("the head was interrupted"));
}

// A process that ends while others are waited for, and is started again.
TEST_F(Join, WhoLeavesAndComesBackJoins) {
  std::atomic<int> interrupted{0};
  std::atomic<bool> is_here{false}, has_left{false};
  std::optional<Result<Joined>> head, again, other;
  std::jthread waiting([&] {
    HostPlace first = place(3, 0);
    first.patience = milliseconds(60000);
    head.emplace(join(first, passport(3), [&](std::string_view line) {
      if (line.find("process 1 of 3 is here") != std::string_view::npos) is_here = true;
      if (line.find("process 1 at 127.0.0.1 has left again") != std::string_view::npos) has_left = true;
    }));
  });
  {
    HostPlace leaving = place(3, 1);
    leaving.interrupted = &interrupted;
    std::jthread guest([&] { EXPECT_FALSE(join(leaving, passport(3), {})); });
    for (int round = 0; round < 2000 && !is_here; ++round) std::this_thread::sleep_for(milliseconds(5));
    interrupted = 2;
  }
  ASSERT_TRUE(is_here);
  {
    std::jthread guest([&] { again.emplace(join(place(3, 1), passport(3), {})); });
    other.emplace(join(place(3, 2), passport(3), {}));
  }
  waiting.join();
  EXPECT_TRUE(has_left);
  for (const auto* one : {&head, &again, &other}) EXPECT_TRUE((*one)->ok()) << (*one)->error().message;
}

// A port scanner, a browser, somebody who says nothing.
TEST_F(Join, StrangersAreSentAway) {
  std::jthread stranger([&] {
    for (const std::string& text :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(40, '\0'), std::string()}) {
      for (int tries = 0; tries < 100; ++tries) {
        auto stream = connect_to("127.0.0.1", port_, milliseconds(1000));
        if (!stream) {
          std::this_thread::sleep_for(milliseconds(10));
          continue;
        }
        const auto part = std::as_bytes(std::span<const char>(text));
        stream->send({&part, 1});
        break;
      }
    }
  });
  const auto joined = all({place(2, 0), place(2, 1)}, {passport(2), passport(2)});
  for (const auto& one : joined) EXPECT_TRUE(one) << one.error().message;
}

}  // namespace
}  // namespace lockstep::collectives::test
