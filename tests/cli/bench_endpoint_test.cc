// What `lockstep bench --base-url` sends, what it reads of answers, and what it makes of the numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

#include "lockstep/cli/bench_load.h"
#include "lockstep/cli/bench_plot.h"
#include "lockstep/cli/bench_record.h"

namespace lockstep::cli {
namespace {

EndpointBench bench_of(int requests) {
  EndpointBench bench;
  bench.base_url = "http://h/v1";
  bench.num_requests = requests;
  return bench;
}

TEST(BenchLoad, ReadsLengthsAndRefusesOthers) {
  EXPECT_EQ(parse_lengths("512", "--x")->draw(1, 7), 512);
  const auto range = *parse_lengths("3-5", "--x");
  std::map<int, int> seen;
  for (uint64_t n = 0; n < 3000; ++n) ++seen[range.draw(1, n)];
  ASSERT_EQ(seen.size(), 3U);
  for (const auto& [length, count] : seen) EXPECT_NEAR(count, 1000, 150) << length;
  const auto normal = *parse_lengths("normal:200:20", "--x");
  double sum = 0, squares = 0;
  for (uint64_t n = 0; n < 4000; ++n) {
    const double length = normal.draw(9, n);
    sum += length;
    squares += length * length;
  }
  EXPECT_NEAR(sum / 4000, 200, 1.5);
  EXPECT_NEAR(std::sqrt(squares / 4000 - sum / 4000 * sum / 4000), 20, 1.5);
  EXPECT_GE(parse_lengths("normal:1:100", "--x")->draw(1, 3), 1);
  for (const char* wrong :
       {"", "0", "-4", "5-3", "a", "1.5-2", "normal:5", "normal:5:-1", "99999999", "1-", "nan"}) {
    const auto lengths = parse_lengths(wrong, "--input-tokens");
    ASSERT_FALSE(lengths.ok()) << wrong;
    EXPECT_EQ(lengths.error().field, "--input-tokens");
  }
}

TEST(BenchLoad, ArrivalsArePoissonAndTheSameForTheSameSeed) {
  EndpointBench bench = bench_of(4000);
  bench.request_rate = 50;
  bench.input_tokens = bench.output_tokens = "1";
  const auto plan = *plan_load(bench), again = *plan_load(bench);
  std::vector<double> gaps;
  for (size_t i = 1; i < plan.requests.size(); ++i) {
    EXPECT_EQ(plan.requests[i].at_seconds, again.requests[i].at_seconds);
    gaps.push_back(plan.requests[i].at_seconds - plan.requests[i - 1].at_seconds);
  }
  double mean = 0, squares = 0;
  for (const double gap : gaps) mean += gap / 3999, squares += gap * gap / 3999;
  EXPECT_NEAR(mean, 0.02, 0.001);
  EXPECT_NEAR(std::sqrt(squares - mean * mean), 0.02, 0.002);  // of an exponential: its mean
  bench.seed = 2;
  EXPECT_NE(plan_load(bench)->requests[5].at_seconds, plan.requests[5].at_seconds);
}

TEST(BenchLoad, PrefixesAreShared) {
  EndpointBench bench = bench_of(60);
  bench.prefix_tokens = 20;
  bench.num_prefixes = 3;
  bench.input_tokens = "5";
  std::map<std::string, int> prefixes, prompts;
  const auto plan = *plan_load(bench);
  for (const PlannedRequest& request : plan.requests) {
    const std::string text = request.body["messages"][0]["content"];
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 24);
    size_t end = 0;
    for (int word = 0; word < 20; ++word) end = text.find(' ', end) + 1;
    ++prefixes[text.substr(0, end)];
    ++prompts[text];
  }
  EXPECT_EQ(prefixes.size(), 3U);
  EXPECT_EQ(prompts.size(), 60U);
}

TEST(BenchLoad, TracesAreReadInTheOrderOfTheirTimes) {
  const std::string path = ::testing::TempDir() + "bench_trace.jsonl";
  std::ofstream(path) << R"({"timestamp": 2000, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]}
{"timestamp": 1000, "input_length": 600, "output_length": 3, "hash_ids": [1, 3]}

{"timestamp": 3000, "prompt": "Hello", "output_length": 2}
)";
  EndpointBench bench = bench_of(100);
  bench.api = EndpointBench::Api::kCompletions;
  bench.trace_file = path;
  bench.trace_speed = 2;
  const auto plan = plan_load(bench);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->requests.size(), 3U);
  EXPECT_EQ(plan->requests[0].at_seconds, 0);
  EXPECT_EQ(plan->requests[1].at_seconds, 0.5);
  EXPECT_EQ(plan->requests[2].at_seconds, 1);
  EXPECT_EQ(plan->requests[0].body["max_tokens"], 3);
  EXPECT_EQ(plan->requests[2].body["prompt"], "Hello");
  const std::string first = plan->requests[0].body["prompt"], second = plan->requests[1].body["prompt"];
  size_t same = 0;
  while (first[same] == second[same]) ++same;
  EXPECT_GE(std::count(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(same), ' '), 512);
  EXPECT_EQ(std::count(first.begin(), first.end(), ' '), 600);
  for (const char* wrong : {"{}", "[]", "{\"output_length\": 1}", "{\"output_length\": 0, \"prompt\": \"x\"}",
                            "{", "{\"timestamp\": -1, \"output_length\": 1, \"prompt\": \"x\"}"}) {
    std::ofstream(path) << wrong;
    const auto refused = plan_load(bench);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.error().message.find("line 1"), std::string::npos);
  }
}

// As numpy.percentile([1..10], [50, 90, 99]) gives it.
TEST(BenchRecord, PercentilesLieBetweenValues) {
  const Spread spread = spread_of({10, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  EXPECT_DOUBLE_EQ(spread.p50, 5.5);
  EXPECT_DOUBLE_EQ(spread.p90, 9.1);
  EXPECT_DOUBLE_EQ(spread.p99, 9.91);
  EXPECT_DOUBLE_EQ(spread.mean, 5.5);
  EXPECT_DOUBLE_EQ(spread.max, 10);
  EXPECT_EQ(spread_of({}).count, 0U);
  EXPECT_DOUBLE_EQ(spread_of({3}).p99, 3);
}

constexpr const char* kStream =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"
    ": a comment\n\n"
    "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n"
    "event: x\ndata:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{}}]}\n\n"
    "data: "
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":5,\"prompt_tokens_details\":{"
    "\"cached_tokens\":4}}}\n\n"
    "data: [DONE]\n\n";

TEST(BenchRecord, ReadsAStreamHoweverItIsCut) {
  const std::string stream = kStream;
  for (size_t step = 1; step < 40; ++step) {
    RequestRecord record{.sent = 1};
    AnswerReader reader(record);
    double now = 1;
    for (size_t at = 0; at < stream.size(); at += step)
      reader.read(std::string_view(stream).substr(at, step), now += 0.25);
    reader.finish(200, "", now);
    EXPECT_TRUE(record.ok()) << record.error;
    EXPECT_EQ(record.text_times.size(), 3U);
    EXPECT_EQ(record.input_tokens, 11);
    EXPECT_EQ(record.output_tokens, 5);
    EXPECT_EQ(record.cached_tokens, 4);
  }
}

TEST(BenchRecord, SaysWhatFailed) {
  const std::tuple<const char*, int, const char*, const char*> table[] = {
      {"data: {\"choices\":[{\"text\":\"a\"}]}\n\n", 200, "", "without [DONE]"},
      {"data: {\"error\":{\"message\":\"rank 2 is gone\"}}\n\ndata: [DONE]\n\n", 200, "", "rank 2 is gone"},
      {"{\"error\": \"full\"}", 503, "", "status 503: {\"error\": \"full\"}"},
      {"data: nonsense\n\n", 200, "", "no JSON"},
      {"data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":-4}}\n\ndata: [DONE]\n\n", 200,
       "", "completion_tokens is -4"},
      {"data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"prompt_tokens\":1e300}}\n\ndata: [DONE]\n\n", 200,
       "", "prompt_tokens is 1e+300"},
      {"data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":18446744073709551615}}\n\n"
       "data: [DONE]\n\n",
       200, "", "completion_tokens is 18446744073709551615"},
      {"", 0, "cannot connect: refused", "cannot connect"}};
  for (const auto& [body, status, failure, said] : table) {
    RequestRecord record;
    AnswerReader reader(record);
    reader.read(body, 1);
    reader.finish(status, failure, 2);
    EXPECT_FALSE(record.ok());
    EXPECT_NE(record.error.find(said), std::string::npos) << record.error;
  }
}

// A line without an end takes no memory, and the lines behind it are read.
TEST(BenchRecord, ALineThatIsTooLongIsAFailure) {
  RequestRecord record;
  AnswerReader reader(record);
  reader.read("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: ", 1);
  for (int i = 0; i < 40; ++i) reader.read(std::string(size_t{1} << 20, 'x'), 2);
  reader.read(
      "data: {\"error\":\"no line of its own\"}\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\n\ndata: "
      "[DONE]\n\n",
      3);
  reader.finish(200, "", 4);
  EXPECT_FALSE(record.ok());
  EXPECT_EQ(record.error, "a line of the stream has more than 16777216 bytes");
  EXPECT_EQ(record.text_times, (std::vector<double>{1, 3}));
}

TEST(BenchRecord, WhereNothingSucceededThereAreNoTimes) {
  RequestRecord failed{.sent = 0, .ended = 1, .status = 503, .error = "status 503"};
  const Json summary = summary_of({.base_url = "http://a", .model = "m"}, "a load", {failed});
  EXPECT_EQ(summary["completed"], 0);
  for (const char* key : {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"}) {
    EXPECT_EQ(summary[key]["count"], 0) << key;
    EXPECT_TRUE(summary[key]["p50"].is_null()) << key;
  }
  const std::string table = summary_table(summary);
  EXPECT_NE(table.find("to the first token (TTFT)            -         -"), std::string::npos) << table;
}

std::vector<RequestRecord> two_and_a_failure() {
  return {{.planned = 0,
           .sent = 0.5,
           .ended = 2,
           .text_times = {1, 1.5, 2},
           .input_tokens = 10,
           .output_tokens = 3,
           .status = 200},
          {.planned = 1,
           .sent = 1,
           .ended = 4,
           .text_times = {3, 4},
           .input_tokens = 20,
           .output_tokens = 5,
           .status = 200},
          {.planned = 1, .sent = 1, .ended = 2, .status = 503, .error = "full <b>"}};
}

TEST(BenchRecord, SummaryIsOfWhatCompleted) {
  EndpointBench bench = bench_of(3);
  bench.slo_ttft_ms = 1000;
  bench.slo_tpot_ms = 500;
  const Json summary = summary_of(bench, "three", two_and_a_failure());
  EXPECT_EQ(summary["completed"], 2);
  EXPECT_EQ(summary["failed"], 1);
  EXPECT_EQ(summary["errors"], Json({{"full <b>", 1}}));
  EXPECT_EQ(summary["seconds"], 4.0);
  EXPECT_EQ(summary["output_tokens_per_second"], 2.0);
  EXPECT_EQ(summary["requests_per_second"], 0.5);
  EXPECT_EQ(summary["ttft_ms"]["max"], 2000.0);
  EXPECT_EQ(summary["ttft_ms"]["p50"], 1250.0);
  EXPECT_EQ(summary["tpot_ms"]["mean"], 375.0);  // (2 - 1) / 2 and (4 - 3) / 4
  EXPECT_EQ(summary["itl_ms"]["count"], 3);
  EXPECT_EQ(summary["sent_late_ms"]["max"], 500.0);
  EXPECT_EQ(summary["goodput_requests_per_second"], 0.25);
  EXPECT_NE(summary_table(summary).find("failed 1 times: full <b>"), std::string::npos);
}

// Where arrivals are planned, what waited in the client counts.
TEST(BenchRecord, PlannedArrivalsAreWhatTimesCountFrom) {
  EndpointBench bench = bench_of(1);
  bench.slo_ttft_ms = 1000;
  const std::vector<RequestRecord> late = {{.planned = 1,
                                            .sent = 4,
                                            .ended = 6,
                                            .text_times = {4.5, 6},
                                            .input_tokens = 1,
                                            .output_tokens = 2,
                                            .status = 200}};
  EXPECT_EQ(summary_of(bench, "one", late)["ttft_ms"]["max"], 500.0) << "all at once: nothing is planned";
  EXPECT_EQ(summary_of(bench, "one", late)["good_share"], 1.0);
  bench.request_rate = 3;
  const Json summary = summary_of(bench, "one", late);
  EXPECT_EQ(summary["ttft_ms"]["max"], 3500.0);
  EXPECT_EQ(summary["e2e_ms"]["max"], 5000.0);
  EXPECT_EQ(summary["good_share"], 0.0);
}

TEST(BenchPlot, StandsAlone) {
  const std::string path = ::testing::TempDir() + "bench_plot.html";
  const auto records = two_and_a_failure();
  const Json summary = summary_of(bench_of(3), "a < b", records);
  ASSERT_TRUE(write_plot(path, summary, records).ok());
  std::ifstream file(path);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(page.find("a &lt; b"), std::string::npos);
  EXPECT_NE(page.find("full &lt;b>"), std::string::npos);
  for (const char* foreign : {"<script", "src=", "href=", "nan", "inf"})
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  EXPECT_FALSE(write_plot("/no/such/folder/x.svg", summary, records).ok());
  // Nothing completed: a picture all the same.
  EXPECT_NE(plot_svg(summary_of(bench_of(1), "x", {}), {}).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli
