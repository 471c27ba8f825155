#include "lockstep/runtime/executor/job_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "lockstep/base/check.h"

namespace lockstep::runtime {
namespace {

TEST(JobThreads, EachRunsEveryJobOnce) {
  for (const int count : {0, 1, 5}) {
    JobThreads threads(count, "--flag");
    EXPECT_EQ(threads.size(), count);
    std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
    std::atomic<int> errors = 0;
    int meanwhile = 0;
    for (int repeat = 0; repeat < 100; ++repeat)
      threads.run([&](int thread) { ++runs[static_cast<size_t>(thread)]; },
                  [&](int, const std::string&) { ++errors; }, [&] { ++meanwhile; });
    for (const auto& one : runs) EXPECT_EQ(one, 100);
    EXPECT_EQ(meanwhile, 100);
    EXPECT_EQ(errors, 0);
  }
}

// What a thread throws reaches the caller and ends no process; the next job runs as if nothing had been.
TEST(JobThreads, AnExceptionIsToldAndTheThreadsLiveOn) {
  JobThreads threads(3, "--flag");
  std::mutex mutex;
  std::vector<std::pair<int, std::string>> told;
  const auto on_error = [&](int thread, const std::string& what) {
    const std::lock_guard lock(mutex);
    told.emplace_back(thread, what);
  };
  threads.run(
      [](int thread) {
        if (thread != 1) throw Fatal(fmt::format("broke {}", thread));
      },
      on_error);
  EXPECT_THAT(told, ::testing::UnorderedElementsAre(std::pair(0, "broke 0"), std::pair(2, "broke 2")));
  std::atomic<int> runs = 0;
  threads.run([&](int) { ++runs; }, on_error);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(told.size(), 2u);
}

// What the caller's own part throws comes once nobody uses the job any more.
TEST(JobThreads, TheCallersExceptionWaitsForTheThreads) {
  JobThreads threads(4, "--flag");
  std::atomic<int> runs = 0;
  EXPECT_THROW(threads.run([&](int) { ++runs; }, [](int, const std::string&) {}, [] { throw Fatal("mine"); }),
               Fatal);
  EXPECT_EQ(runs, 4);
}

}  // namespace
}  // namespace lockstep::runtime
