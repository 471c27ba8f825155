#include "lockstep/cli/bench_plot.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

namespace lockstep::cli {
namespace {

constexpr int kWidth = 460, kHeight = 260, kLeft = 64, kBottom = 44, kTop = 34, kRight = 16;
constexpr int kNumBins = 60;

struct Series {
  std::string name, color;
  std::vector<std::pair<double, double>> points;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

// The next of 1, 2, 5, 10, 20, ... that is not below.
double round_up(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power >= value * (1 - 1e-9)) return step * power;
  return 10 * power;
}

// One chart at a place of the picture; both axes begin at 0.
std::string chart(int at_x, int at_y, std::string_view title, std::string_view x_name,
                  const std::vector<Series>& series) {
  double max_x = 0, max_y = 0;
  for (const Series& one : series)
    for (const auto& [x, y] : one.points) max_x = std::max(max_x, x), max_y = std::max(max_y, y);
  max_x = max_x > 0 ? max_x : 1;
  max_y = round_up(max_y);
  const double plot_width = kWidth - kLeft - kRight, plot_height = kHeight - kTop - kBottom;
  const auto x_of = [&](double x) { return kLeft + x / max_x * plot_width; };
  const auto y_of = [&](double y) { return kTop + plot_height - y / max_y * plot_height; };
  std::string out =
      fmt::format("<g transform=\"translate({},{})\">\n<text x=\"{}\" y=\"18\" class=\"t\">{}</text>\n", at_x,
                  at_y, kLeft, escaped(title));
  for (int i = 0; i <= 4; ++i) {
    const double y = max_y * i / 4, x = max_x * i / 4;
    out += fmt::format(
        "<path class=\"g\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" class=\"e\">{:g}</text>\n", kLeft,
        y_of(y), kWidth - kRight, kLeft - 6, y_of(y) + 4, y);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" class=\"m\">{:.3g}</text>\n", x_of(x),
                       kHeight - kBottom + 16, x);
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" class=\"m\">{}</text>\n", kLeft + plot_width / 2,
                     kHeight - kBottom + 34, escaped(x_name));
  double legend = kWidth - kRight;
  for (const Series& one : series) {
    if (one.points.empty()) continue;
    out += fmt::format("<path fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" d=\"", one.color);
    for (size_t i = 0; i < one.points.size(); ++i)
      out += fmt::format("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', x_of(one.points[i].first),
                         y_of(one.points[i].second));
    out += "\"/>\n";
    if (series.size() > 1) {
      out += fmt::format("<text x=\"{}\" y=\"18\" class=\"e\" style=\"fill:{}\">{}</text>\n", legend,
                         one.color, escaped(one.name));
      legend -= 9.0 * static_cast<double>(one.name.size()) + 12;
    }
  }
  return out + "</g>\n";
}

// The share of values that are at most x, in at most a few hundred points.
Series distribution(std::string name, std::string color, std::vector<double> values) {
  constexpr size_t kMaxPoints = 400;
  Series series{std::move(name), std::move(color), {}};
  std::sort(values.begin(), values.end());
  const size_t step = std::max<size_t>(1, values.size() / kMaxPoints);
  for (size_t i = 0; i < values.size(); i += step)
    series.points.emplace_back(values[i] * 1000,
                               100.0 * static_cast<double>(i + 1) / static_cast<double>(values.size()));
  if (!values.empty()) series.points.emplace_back(values.back() * 1000, 100.0);
  return series;
}

std::vector<double> of_each(const std::vector<RequestRecord>& records,
                            double (RequestRecord::*value)(RequestRecord::Since) const,
                            RequestRecord::Since since) {
  std::vector<double> values;
  for (const RequestRecord& record : records)
    if (record.ok()) values.push_back((record.*value)(since));
  return values;
}

// What came in each stretch of time, as a rate.
Series rate_over_time(const std::vector<RequestRecord>& records, double seconds) {
  std::vector<double> bins(kNumBins);
  const double width = seconds / kNumBins;
  for (const RequestRecord& record : records) {
    if (record.text_times.empty()) continue;
    const double weight =
        static_cast<double>(record.output_tokens) / static_cast<double>(record.text_times.size());
    for (const double time : record.text_times)
      bins[std::min<size_t>(kNumBins - 1, static_cast<size_t>(std::max(0.0, time / width)))] +=
          weight / width;
  }
  Series series{"tokens/s", "#0a7d5a", {}};
  for (int i = 0; i < kNumBins; ++i)
    series.points.emplace_back((i + 0.5) * width, bins[static_cast<size_t>(i)]);
  return series;
}

Series open_over_time(const std::vector<RequestRecord>& records, double seconds) {
  Series series{"open requests", "#b3541e", {}};
  for (int i = 0; i <= kNumBins; ++i) {
    const double time = seconds * i / kNumBins;
    const auto open = std::count_if(records.begin(), records.end(), [&](const RequestRecord& record) {
      return record.sent <= time && time < record.ended;
    });
    series.points.emplace_back(time, static_cast<double>(open));
  }
  return series;
}

}  // namespace

std::string plot_svg(const Json& summary, const std::vector<RequestRecord>& records) {
  std::vector<double> tpot, itl;
  for (const RequestRecord& record : records) {
    if (!record.ok()) continue;
    if (const auto each = record.tpot()) tpot.push_back(*each);
    for (size_t i = 1; i < record.text_times.size(); ++i)
      itl.push_back(record.text_times[i] - record.text_times[i - 1]);
  }
  const double seconds = summary["seconds"].get<double>();
  const auto since =
      summary["times_from"] == "planned" ? RequestRecord::Since::kPlanned : RequestRecord::Since::kSent;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"system-ui,sans-serif\" "
      "font-size=\"11\">\n<style>.t{{font-size:13px;font-weight:600}}.e{{text-anchor:end}}.m{{text-anchor:"
      "middle}}.g{{stroke:#ddd}}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n<text x=\"{2}\" y=\"20\">{3}: {4}</text>\n",
      2 * kWidth, 2 * kHeight + 30, kLeft, escaped(summary["url"].get<std::string>()),
      escaped(summary["load"].get<std::string>()));
  out += chart(0, 30, "Share of requests (%)", "milliseconds",
               {distribution("whole", "#2458a6", of_each(records, &RequestRecord::e2e, since)),
                distribution("first token", "#b3541e", of_each(records, &RequestRecord::ttft, since))});
  out += chart(
      kWidth, 30, "Share of tokens (%)", "milliseconds",
      {distribution("TPOT", "#2458a6", std::move(tpot)), distribution("ITL", "#b3541e", std::move(itl))});
  out += chart(0, 30 + kHeight, "Output tokens a second", "seconds", {rate_over_time(records, seconds)});
  out += chart(kWidth, 30 + kHeight, "Open requests", "seconds", {open_over_time(records, seconds)});
  return out + "</svg>\n";
}

Status write_plot(const std::string& path, const Json& summary, const std::vector<RequestRecord>& records) {
  std::string text = plot_svg(summary, records);
  if (path.ends_with(".html"))
    text = fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>lockstep "
        "bench</title></head>\n<body style=\"font-family:system-ui\">\n{}"
        "<pre>{}</pre>\n</body></html>\n",
        text, escaped(summary_table(summary)));
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return invalid_argument("--plot", "--plot {} cannot be written", path);
  return Done{};
}

}  // namespace lockstep::cli
