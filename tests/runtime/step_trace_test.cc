// Traces are JSON whatever they hold and however they end; suspects are remembered up to a bound.
#include "lockstep/runtime/step_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <set>

#include "lockstep/base/file.h"
#include "lockstep/base/json.h"
#include "lockstep/runtime/suspects.h"

namespace lockstep::runtime {
namespace {

using std::chrono::milliseconds;

class TraceFile {
 public:
  TraceFile()
      : path_(std::filesystem::temp_directory_path() / fmt::format("lockstep_trace_{}.json", getpid())) {}
  ~TraceFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }
  Json read() const { return parse_json(read_file(path_).value()).value(); }

 private:
  std::filesystem::path path_;
};

// Spans with durations, without the names of rows.
std::vector<Json> spans_of(const Json& trace) {
  std::vector<Json> spans;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X") spans.push_back(event);
  return spans;
}

TEST(StepTrace, HoldsThePhasesAndWhatEveryRankDid) {
  const TraceFile file;
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto trace = StepTrace::open(file.path(), 10).value();
    trace->add("schedule", begin, begin + milliseconds(1));
    trace->add_step(
        7, begin + milliseconds(1), begin + milliseconds(11), {.upload = 0.001, .sample = 0.002},
        {{{"computes attention.0", begin + milliseconds(2), begin + milliseconds(4)},
          {"all_reduce on the edge \"a\" -> b\\", begin + milliseconds(4), begin + milliseconds(5)}},
         {}});
  }
  const Json trace = file.read();
  const auto spans = spans_of(trace);
  ASSERT_EQ(spans.size(), 6U);
  EXPECT_EQ(spans[0]["name"], "schedule");
  EXPECT_EQ(spans[0]["dur"], 1000);
  EXPECT_EQ(spans[1]["name"], "upload");
  EXPECT_EQ(spans[2]["name"], "forward");
  EXPECT_NEAR(spans[2]["dur"].get<double>(), 7000, 1);
  EXPECT_EQ(spans[3]["name"], "sample");
  EXPECT_NEAR(spans[3]["dur"].get<double>(), 2000, 1);
  EXPECT_EQ(spans[3]["args"]["step"], 7);
  EXPECT_EQ(spans[4]["cat"], "stage");
  EXPECT_EQ(spans[4]["tid"], 1);
  EXPECT_EQ(spans[5]["name"], "all_reduce on the edge \"a\" -> b\\");
  EXPECT_EQ(spans[5]["cat"], "edge");
  std::vector<std::string> rows;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "M") rows.push_back(event["args"]["name"]);
  EXPECT_EQ(rows, (std::vector<std::string>{"engine", "engine, beside a step", "rank 0", "rank 1"}));
}

TEST(StepTrace, IsCompleteAfterItsStepsAndIgnoresFurtherOnes) {
  const TraceFile file;
  const auto trace = StepTrace::open(file.path(), 2).value();
  const auto now = std::chrono::steady_clock::now();
  for (uint64_t step = 0; step < 5; ++step) {
    trace->add_step(step, now, now + milliseconds(1), {}, {});
    trace->add("commit", now, now);
  }
  std::set<uint64_t> steps;  // while the trace is still held
  for (const Json& span : spans_of(file.read()))
    if (span.contains("args")) steps.insert(span["args"]["step"].get<uint64_t>());
  EXPECT_EQ(steps, (std::set<uint64_t>{0, 1}));
}

TEST(StepTrace, AFileThatCannotBeWrittenIsSaid) {
  const auto trace = StepTrace::open("/proc/no/such/folder/trace.json", 1);
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.error().field, "--trace");
}

TEST(Suspects, AreForgottenWhenTheyEndOrWhenThereAreTooMany) {
  Suspects suspects(2);
  suspects.blame(1);
  EXPECT_EQ(suspects.verdict(1), Suspects::Verdict::kAlone);
  suspects.blame(1);
  EXPECT_EQ(suspects.verdict(1), Suspects::Verdict::kRefused);
  EXPECT_EQ(suspects.verdict(2), Suspects::Verdict::kFree);
  suspects.clear(1);
  EXPECT_EQ(suspects.verdict(1), Suspects::Verdict::kFree);
  EXPECT_TRUE(suspects.empty());
  for (uint64_t fingerprint = 0; fingerprint < 10'000; ++fingerprint) suspects.blame(fingerprint);
  EXPECT_EQ(suspects.num_failures(0), 0) << "the oldest has gone";
  EXPECT_EQ(suspects.num_failures(9'999), 1);
  Suspects never(0);
  for (int i = 0; i < 10; ++i) never.blame(5);
  EXPECT_EQ(never.verdict(5), Suspects::Verdict::kFree);
}

TEST(Suspects, AreKnownByWhatTheyAskFor) {
  Request request;
  request.prompt = {1, 2, 3};
  const uint64_t fingerprint = fingerprint_of(request);
  Request same = request;
  same.sampling.seed = 5;
  same.label = "another client";
  same.replica = 1;
  EXPECT_EQ(fingerprint_of(same), fingerprint);
  Request other = request;
  other.prompt = {1, 2, 4};
  EXPECT_NE(fingerprint_of(other), fingerprint);
  other = request;
  other.sampling.temperature = 0.5f;
  EXPECT_NE(fingerprint_of(other), fingerprint);
}

// A probe is the same each time, and is all that runs in a quiet hour.
TEST(Suspects, NoFailureCountsForWhatIsExempt) {
  Request probe;
  probe.prompt = {0};
  probe.blame = Request::Blame::kExempt;
  Suspects suspects(2);
  for (int i = 0; i < 5; ++i) suspects.blame(fingerprint_of(probe));
  EXPECT_EQ(suspects.verdict(fingerprint_of(probe)), Suspects::Verdict::kFree);
  EXPECT_TRUE(suspects.empty());
}

}  // namespace
}  // namespace lockstep::runtime
