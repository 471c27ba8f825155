// The registry, and its text against the rules of Prometheus' exposition format 0.0.4 (checked by a reader
// written here from the format's description) and against the example that the description gives.
#include "lockstep/serving/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include "lockstep/base/check.h"

namespace lockstep::serving::metrics {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Sample {
  std::map<std::string, std::string> labels;
  double value = 0;
};
struct ReadFamily {
  std::string type, help;
  std::vector<std::pair<std::string, Sample>> samples;
};

// A strict reader of the format; throws at the first thing that the format does not allow.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  std::map<std::string, ReadFamily> read() {
    while (at_ < text_.size()) read_line();
    return families_;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(why + " at byte " + std::to_string(at_) + ": " + text_.substr(at_, 60));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void expect(const std::string& what) {
    if (text_.compare(at_, what.size(), what) != 0) fail("expected \"" + what + "\"");
    at_ += what.size();
  }
  std::string read_name() {
    const size_t begin = at_;
    const auto is_name = [&](char c) {
      return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':' ||
             (at_ > begin && std::isdigit(static_cast<unsigned char>(c)) != 0);
    };
    while (is_name(peek())) ++at_;
    if (at_ == begin) fail("expected a name");
    return text_.substr(begin, at_ - begin);
  }
  std::string rest_of_line() {
    const size_t end = text_.find('\n', at_);
    if (end == std::string::npos) fail("the last line does not end in a line feed");
    const std::string rest = text_.substr(at_, end - at_);
    at_ = end + 1;
    return rest;
  }
  static std::string unescape(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text.at(++i);
      if (c != '\\' && c != 'n') throw std::runtime_error("an unknown escape in a help text");
      out += c == 'n' ? '\n' : '\\';
    }
    return out;
  }
  std::string read_label_value() {
    expect("\"");
    std::string out;
    while (peek() != '"') {
      char c = text_.at(at_++);
      if (c == '\n') fail("a line feed in a label value");
      if (c == '\\') {
        c = text_.at(at_++);
        if (c != '\\' && c != 'n' && c != '"') fail("an unknown escape");
        if (c == 'n') c = '\n';
      }
      out += c;
    }
    expect("\"");
    return out;
  }

  void read_line() {
    if (text_.compare(at_, 7, "# HELP ") == 0) {
      at_ += 7;
      current_ = read_name();
      if (families_.count(current_) != 0) fail("a family came twice: " + current_);
      expect(" ");
      families_[current_].help = unescape(rest_of_line());
      expect("# TYPE " + current_ + " ");
      families_[current_].type = rest_of_line();
      return;
    }
    const std::string name = read_name();
    Sample sample;
    if (peek() == '{') {
      expect("{");
      for (;;) {
        const std::string label = read_name();
        if (label.find(':') != std::string::npos) fail("a colon in a label's name");
        expect("=");
        if (!sample.labels.emplace(label, read_label_value()).second) fail("a label came twice");
        if (peek() != ',') break;
        expect(",");
      }
      expect("}");
    }
    expect(" ");
    sample.value = number(rest_of_line());
    ReadFamily& family = families_.at(current_);
    const std::string suffix =
        name.substr(0, current_.size()) == current_ ? name.substr(current_.size()) : "?";
    const bool is_histogram = family.type == "histogram";
    const std::set<std::string> allowed =
        is_histogram ? std::set<std::string>{"_bucket", "_sum", "_count"} : std::set<std::string>{""};
    if (allowed.count(suffix) == 0) fail("the sample " + name + " does not belong to " + current_);
    family.samples.emplace_back(suffix, sample);
  }
  static double number(const std::string& text) {
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (text == "+Inf") return std::numeric_limits<double>::infinity();
    if (text == "-Inf") return -std::numeric_limits<double>::infinity();
    size_t used = 0;
    const double value = std::stod(text, &used);
    if (used != text.size()) throw std::runtime_error("not a number: " + text);
    return value;
  }

  const std::string text_;
  size_t at_ = 0;
  std::string current_ = "?";
  std::map<std::string, ReadFamily> families_;
};

TEST(Metrics, TextOfEachType) {
  Registry registry;
  registry
      .counter("http_requests_total", "The total number of HTTP requests.",
               {{"method", "post"}, {"code", "200"}})
      .add(1027);
  registry
      .counter("http_requests_total", "The total number of HTTP requests.",
               {{"code", "400"}, {"method", "post"}})
      .add(3);
  registry.gauge("temperature", "Degrees.").set(-0.5);
  Histogram& seconds = registry.histogram("http_request_duration_seconds",
                                          "A histogram of the request duration.", {0.05, 0.1, 0.2});
  for (const double value : {0.01, 0.05, 0.07, 0.2, 3.0}) seconds.observe(value);
  // The layout of the format's description: HELP, TYPE, samples; a bound counts in its own bucket ("le").
  EXPECT_EQ(registry.text(), R"(# HELP http_request_duration_seconds A histogram of the request duration.
# TYPE http_request_duration_seconds histogram
http_request_duration_seconds_bucket{le="0.05"} 2
http_request_duration_seconds_bucket{le="0.1"} 3
http_request_duration_seconds_bucket{le="0.2"} 4
http_request_duration_seconds_bucket{le="+Inf"} 5
http_request_duration_seconds_sum 3.33
http_request_duration_seconds_count 5
# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{code="200",method="post"} 1027
http_requests_total{code="400",method="post"} 3
# HELP temperature Degrees.
# TYPE temperature gauge
temperature -0.5
)");
}

TEST(Metrics, TextReadsBackWhateverItHolds) {
  Registry registry;
  const std::string hostile = "C:\\DIR\\FILE.TXT \"quoted\"\nsecond line {a=\"b\"} \xc3\xa4";
  registry.counter("a:b_total", "help with \\ and\na second line").add(1e300);
  registry.gauge("g", "", {{"path", hostile}}).set(std::numeric_limits<double>::quiet_NaN());
  registry.gauge("g", "", {{"path", ""}}).set(-std::numeric_limits<double>::infinity());
  registry.gauge("third", "a third").set(1.0 / 3);
  registry.histogram("h", "", {0.1, 2.5}, {{"model", hostile}}).observe(1);
  registry.histogram("h", "", {0.1, 2.5}, {{"model", "x"}});
  const auto families = Reader(registry.text()).read();
  ASSERT_EQ(families.size(), 4u);
  EXPECT_EQ(families.at("a:b_total").help, "help with \\ and\na second line");
  EXPECT_EQ(families.at("a:b_total").samples[0].second.value, 1e300);
  EXPECT_EQ(families.at("third").samples[0].second.value, 1.0 / 3)
      << "not every digit that counts was written";
  const auto& g = families.at("g").samples;
  ASSERT_EQ(g.size(), 2u);
  EXPECT_EQ(g[0].second.labels.at("path"), "");
  EXPECT_EQ(g[0].second.value, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(g[1].second.labels.at("path"), hostile);
  EXPECT_TRUE(std::isnan(g[1].second.value));
  const auto& h = families.at("h").samples;
  ASSERT_EQ(h.size(), 10u);  // 2 label sets of 3 buckets, sum and count
  std::map<std::string, std::vector<double>> buckets;
  std::map<std::string, double> counts;
  for (const auto& [suffix, sample] : h) {
    if (suffix == "_bucket") {
      EXPECT_EQ(sample.labels.count("le"), 1u);
      buckets[sample.labels.at("model")].push_back(sample.value);
    }
    if (suffix == "_count") counts[sample.labels.at("model")] = sample.value;
  }
  EXPECT_THAT(buckets.at(hostile), ElementsAre(0, 1, 1));
  EXPECT_THAT(buckets.at("x"), ElementsAre(0, 0, 0));
  EXPECT_EQ(counts.at(hostile), 1);
}

TEST(Metrics, AnEmptyRegistryHasAnEmptyText) { EXPECT_EQ(Registry().text(), ""); }

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  Registry registry;
  Counter& first = registry.counter("c_total", "help", {{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(&first, &registry.counter("c_total", "help", {{"b", "2"}, {"a", "1"}}));
  EXPECT_NE(&first, &registry.counter("c_total", "help", {{"a", "1"}, {"b", "3"}}));
}

TEST(Metrics, CountersOnlyGoUp) {
  Registry registry;
  Counter& counter = registry.counter("c_total", "");
  counter.add();
  counter.add(2.5);
  EXPECT_EQ(counter.value(), 3.5);
  counter.raise_to(10);
  counter.raise_to(7);
  EXPECT_EQ(counter.value(), 10);
  EXPECT_THROW(counter.add(-1), Fatal);
}

TEST(Metrics, MistakesOfTheProgramAreChecks) {
  Registry registry;
  registry.counter("taken", "help", {{"a", "1"}});
  EXPECT_THROW(registry.gauge("taken", "help", {{"a", "1"}}), Fatal);
  EXPECT_THROW(registry.counter("taken", "other help", {{"a", "1"}}), Fatal);
  EXPECT_THROW(registry.counter("taken", "help", {{"b", "1"}}), Fatal);
  for (const std::string name : {"", "1a", "a-b", "a b", "\xc3\xa4"})
    EXPECT_THROW(registry.counter(name, ""), Fatal) << name;
  for (const std::string label : {"", "1a", "a:b", "__reserved", "le"})
    EXPECT_THROW(registry.gauge("g", "", {{label, "x"}}), Fatal) << label;
  EXPECT_THROW(registry.gauge("g", "", {{"a", "1"}, {"a", "2"}}), Fatal);
  EXPECT_THROW(registry.histogram("h1", "", {1, 1}), Fatal);
  EXPECT_THROW(registry.histogram("h2", "", {2, 1}), Fatal);
  EXPECT_THROW(registry.histogram("h3", "", {std::numeric_limits<double>::infinity()}), Fatal);
}

TEST(Metrics, HistogramsIgnoreNaNAndCountTheInfinite) {
  Histogram histogram({1});
  histogram.observe(std::numeric_limits<double>::quiet_NaN());
  histogram.observe(1e308);
  const auto now = histogram.snapshot();
  EXPECT_THAT(now.cumulative, ElementsAre(0, 1));
  EXPECT_EQ(now.sum, 1e308);
}

TEST(Metrics, ExponentialBuckets) { EXPECT_THAT(exponential_buckets(0.5, 2, 4), ElementsAre(0.5, 1, 2, 4)); }

TEST(Metrics, RefreshesRunBeforeTheText) {
  Registry registry;
  Gauge& queue = registry.gauge("queue", "");
  int calls = 0;
  registry.before_text([&] {
    queue.set(++calls);
    registry.gauge("made_on_refresh", "", {{"n", std::to_string(calls)}}).set(1);
  });
  EXPECT_THAT(registry.text(), HasSubstr("queue 1\n"));
  EXPECT_THAT(registry.text(), HasSubstr("queue 2\n"));
  EXPECT_THAT(registry.text(), HasSubstr("made_on_refresh{n=\"1\"} 1\nmade_on_refresh{n=\"2\"} 1\n"));
}

TEST(Metrics, ManyThreadsCountExactly) {
  constexpr int kThreads = 4, kTimes = 5000;
  Registry registry;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Counter& counter = registry.counter("c_total", "");
      Histogram& histogram = registry.histogram("h", "", {0.5, 1.5, 2.5});
      for (int i = 0; i < kTimes; ++i) {
        counter.add();
        histogram.observe(t);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {  // while they count: whatever moment is caught must be a valid one
    const auto families = Reader(registry.text()).read();
    const auto h = families.find("h");
    if (h == families.end()) continue;
    double previous = 0;
    for (const auto& [suffix, sample] : h->second.samples) {
      if (suffix == "_sum") continue;
      EXPECT_GE(sample.value, previous);
      previous = sample.value;
      if (suffix == "_count") {
        EXPECT_EQ(sample.value, h->second.samples[3].second.value) << "+Inf must equal the count";
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.counter("c_total", "").value(), kThreads * kTimes);
  const auto now = registry.histogram("h", "", {0.5, 1.5, 2.5}).snapshot();
  EXPECT_THAT(now.cumulative, ElementsAre(kTimes, 2 * kTimes, 3 * kTimes, 4 * kTimes));
  EXPECT_EQ(now.sum, 6.0 * kTimes);
}

}  // namespace
}  // namespace lockstep::serving::metrics
