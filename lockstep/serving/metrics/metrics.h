#pragma once
// Counters, gauges and histograms, and their text for Prometheus (exposition format 0.0.4). A Registry is
// passed to whoever counts; there is no global one. Any thread may change a value or read the text at any
// time. Names, labels and buckets are chosen by our own code, so a wrong one is a bug (a failed check), not
// an Error.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::serving::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;

inline constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

class Counter {
 public:
  void add(double amount = 1);  // amount >= 0
  // For a total that is kept elsewhere: the counter becomes it, and never goes down.
  void raise_to(double total);
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Histogram {
 public:
  explicit Histogram(std::vector<double> upper_bounds);  // ascending and finite; +Inf is added

  // Counts in the first bucket whose upper bound is at least the value; NaN is not counted.
  void observe(double value);

  struct Snapshot {
    std::vector<uint64_t> cumulative;  // one a bound, and +Inf last, which is the count
    double sum = 0;
  };
  Snapshot snapshot() const;
  const std::vector<double>& upper_bounds() const { return upper_bounds_; }

 private:
  std::vector<double> upper_bounds_;
  std::vector<std::atomic<uint64_t>> counts_;  // not cumulative
  std::atomic<double> sum_{0};
};

// start, start * factor, ... `count` of them.
std::vector<double> exponential_buckets(double start, double factor, int count);

class Registry {
 public:
  // The metric of that name and labels, made when it is asked for first; the reference stays good as long as
  // the Registry. A name has one type, one help text, one set of buckets and one set of label names.
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help,
                       const std::vector<double>& upper_bounds, const Labels& labels = {});

  // Called at the start of each text(), to bring values up to date that are kept elsewhere. One runs at a
  // time.
  void before_text(std::function<void()> refresh);

  // All metrics, by name, and within a name by labels.
  std::string text() const;

 private:
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  struct Family {
    Type type = Type::kCounter;
    std::string help;
    std::vector<std::string> label_names;
    std::vector<double> upper_bounds;
    std::map<std::string, std::unique_ptr<Counter>> counters;  // by the labels' text
    std::map<std::string, std::unique_ptr<Gauge>> gauges;
    std::map<std::string, std::unique_ptr<Histogram>> histograms;
  };

  Family& family(const std::string& name, const std::string& help, Type type, const Labels& labels,
                 const std::vector<double>& upper_bounds);
  static void append_family(std::string& out, const std::string& name, const Family& family);

  mutable std::mutex mutex_;
  mutable std::mutex refresh_mutex_;
  std::map<std::string, Family> families_;
  std::vector<std::function<void()>> refreshers_;
};

}  // namespace lockstep::serving::metrics
