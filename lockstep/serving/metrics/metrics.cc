#include "lockstep/serving/metrics/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "lockstep/base/check.h"

namespace lockstep::serving::metrics {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_label_name(std::string_view name) {
  return !name.empty() && is_letter(name[0]) && name.substr(0, 2) != "__" &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

bool is_metric_name(std::string_view name) {
  const auto may_begin = [](char c) { return is_letter(c) || c == ':'; };
  return !name.empty() && may_begin(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return may_begin(c) || is_digit(c); });
}

enum class Quotes : uint8_t { kKeep, kEscape };

// Help texts escape backslash and line feed, label values the double quote too.
void append_escaped(std::string& out, std::string_view text, Quotes quotes) {
  for (const char c : text) {
    if (c == '\\') {
      out.append("\\\\");
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '"' && quotes == Quotes::kEscape) {
      out.append("\\\"");
    } else {
      out.push_back(c);
    }
  }
}

// name="value",... in the order of the names, without braces.
std::string text_of(Labels labels) {
  std::sort(labels.begin(), labels.end());
  std::string out;
  for (const auto& [name, value] : labels) {
    if (!out.empty()) out.push_back(',');
    out.append(name).append("=\"");
    append_escaped(out, value, Quotes::kEscape);
    out.push_back('"');
  }
  return out;
}

// The shortest text that reads back as the same double.
std::string text_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

void append_sample(std::string& out, std::string_view name, std::string_view suffix, std::string_view labels,
                   std::string_view value) {
  out.append(name).append(suffix);
  if (!labels.empty()) out.append("{").append(labels).append("}");
  out.append(" ").append(value).append("\n");
}

void append_histogram(std::string& out, std::string_view name, const std::string& labels,
                      const Histogram& histogram) {
  const Histogram::Snapshot now = histogram.snapshot();
  const std::string before = labels.empty() ? "" : labels + ",";
  for (size_t i = 0; i < now.cumulative.size(); ++i) {
    const double bound = i < histogram.upper_bounds().size() ? histogram.upper_bounds()[i]
                                                             : std::numeric_limits<double>::infinity();
    append_sample(out, name, "_bucket", fmt::format("{}le=\"{}\"", before, text_of(bound)),
                  fmt::format("{}", now.cumulative[i]));
  }
  append_sample(out, name, "_sum", labels, text_of(now.sum));
  append_sample(out, name, "_count", labels, fmt::format("{}", now.cumulative.back()));
}

}  // namespace

void Counter::add(double amount) {
  LOCKSTEP_CHECK_GE(amount, 0.0);
  value_.fetch_add(amount, std::memory_order_relaxed);
}

void Counter::raise_to(double total) {
  double seen = value();
  while (seen < total && !value_.compare_exchange_weak(seen, total, std::memory_order_relaxed)) {
  }
}

Histogram::Histogram(std::vector<double> upper_bounds)
    : upper_bounds_(std::move(upper_bounds)), counts_(upper_bounds_.size() + 1) {
  for (size_t i = 0; i < upper_bounds_.size(); ++i) {
    LOCKSTEP_CHECK(std::isfinite(upper_bounds_[i]), "bound {} is {}", i, upper_bounds_[i]);
    if (i > 0) LOCKSTEP_CHECK_LT(upper_bounds_[i - 1], upper_bounds_[i]);
  }
}

void Histogram::observe(double value) {
  if (std::isnan(value)) return;
  const auto bucket =
      std::lower_bound(upper_bounds_.begin(), upper_bounds_.end(), value) - upper_bounds_.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot now;
  uint64_t total = 0;
  for (const auto& count : counts_) now.cumulative.push_back(total += count.load(std::memory_order_relaxed));
  now.sum = sum_.load(std::memory_order_relaxed);
  return now;
}

std::vector<double> exponential_buckets(double start, double factor, int count) {
  LOCKSTEP_CHECK(start > 0 && factor > 1 && count > 0, "start {}, factor {}, count {}", start, factor, count);
  std::vector<double> bounds;
  for (int i = 0; i < count; ++i) bounds.push_back(start * std::pow(factor, i));
  return bounds;
}

Registry::Family& Registry::family(const std::string& name, const std::string& help, Type type,
                                   const Labels& labels, const std::vector<double>& upper_bounds) {
  std::vector<std::string> label_names;
  for (const auto& [label, value] : labels) {
    LOCKSTEP_CHECK(is_label_name(label) && label != "le", "label {} of {}", label, name);
    label_names.push_back(label);
  }
  std::sort(label_names.begin(), label_names.end());
  const bool is_unique = std::adjacent_find(label_names.begin(), label_names.end()) == label_names.end();
  LOCKSTEP_CHECK(is_unique, "a label of {} comes twice", name);
  const auto found = families_.find(name);
  if (found == families_.end()) {
    LOCKSTEP_CHECK(is_metric_name(name), "metric name {}", name);
    Family& made = families_[name];
    made.type = type;
    made.help = help;
    made.label_names = label_names;
    made.upper_bounds = upper_bounds;
    return made;
  }
  const Family& is = found->second;
  LOCKSTEP_CHECK(
      is.type == type && is.help == help && is.label_names == label_names && is.upper_bounds == upper_bounds,
      "{} was made with another type, help, label names or buckets", name);
  return found->second;
}

Counter& Registry::counter(const std::string& name, const std::string& help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  auto& slot = family(name, help, Type::kCounter, labels, {}).counters[text_of(labels)];
  if (!slot) slot = std::make_unique<Counter>();
  return *slot;
}

Gauge& Registry::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  auto& slot = family(name, help, Type::kGauge, labels, {}).gauges[text_of(labels)];
  if (!slot) slot = std::make_unique<Gauge>();
  return *slot;
}

Histogram& Registry::histogram(const std::string& name, const std::string& help,
                               const std::vector<double>& upper_bounds, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  auto& slot = family(name, help, Type::kHistogram, labels, upper_bounds).histograms[text_of(labels)];
  if (!slot) slot = std::make_unique<Histogram>(upper_bounds);
  return *slot;
}

void Registry::before_text(std::function<void()> refresh) {
  const std::lock_guard lock(refresh_mutex_);
  refreshers_.push_back(std::move(refresh));
}

void Registry::append_family(std::string& out, const std::string& name, const Family& family) {
  static constexpr std::string_view kTypes[] = {"counter", "gauge", "histogram"};
  out.append("# HELP ").append(name).append(" ");
  append_escaped(out, family.help, Quotes::kKeep);
  out.append("\n# TYPE ").append(name).append(" ");
  out.append(kTypes[static_cast<size_t>(family.type)]).append("\n");
  for (const auto& [labels, counter] : family.counters)
    append_sample(out, name, "", labels, text_of(counter->value()));
  for (const auto& [labels, gauge] : family.gauges)
    append_sample(out, name, "", labels, text_of(gauge->value()));
  for (const auto& [labels, histogram] : family.histograms) append_histogram(out, name, labels, *histogram);
}

std::string Registry::text() const {
  {
    const std::lock_guard lock(refresh_mutex_);
    for (const auto& refresh : refreshers_) refresh();
  }
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) append_family(out, name, family);
  return out;
}

}  // namespace lockstep::serving::metrics
