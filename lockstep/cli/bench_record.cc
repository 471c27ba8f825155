#include "lockstep/cli/bench_record.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace lockstep::cli {
namespace {

constexpr size_t kMaxEventBytes = size_t{16} << 20;
constexpr size_t kShownErrorBytes = 300;

bool has_text(const Json& value, const char* key) {
  const auto found = value.find(key);
  if (found == value.end()) return false;
  return (found->is_string() && !found->get_ref<const std::string&>().empty()) ||
         (found->is_array() && !found->empty());
}

bool brings_text(const Json& event) {
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array()) return false;
  return std::any_of(choices->begin(), choices->end(), [](const Json& choice) {
    if (!choice.is_object()) return false;
    const auto delta = choice.find("delta");
    if (delta == choice.end() || !delta->is_object()) return has_text(choice, "text");
    return has_text(*delta, "content") || has_text(*delta, "reasoning_content") ||
           has_text(*delta, "reasoning") || has_text(*delta, "tool_calls");
  });
}

// Of one answer: what a server says beyond is no measurement.
constexpr uint64_t kMostTokens = 1'000'000'000;

// Counts that are absent are 0; of those that no answer can have the first is named.
struct UsageReader {
  std::string fault;

  int64_t count(const Json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return 0;
    if (found->is_number_unsigned() && found->get<uint64_t>() <= kMostTokens) return found->get<int64_t>();
    if (fault.empty()) fault = fmt::format("the server's usage says that {} is {:.40}", key, to_text(*found));
    return 0;
  }
};

Json json_of(const Spread& spread) {
  if (spread.count == 0)
    return {{"count", 0},     {"mean", nullptr}, {"p50", nullptr},
            {"p90", nullptr}, {"p99", nullptr},  {"max", nullptr}};
  const auto ms = [](double seconds) { return std::round(seconds * 1e6) / 1e3; };
  return {{"count", spread.count}, {"mean", ms(spread.mean)}, {"p50", ms(spread.p50)},
          {"p90", ms(spread.p90)}, {"p99", ms(spread.p99)},   {"max", ms(spread.max)}};
}

RequestRecord::Since since_of(const EndpointBench& bench) {
  const bool is_planned = bench.request_rate > 0 || !bench.trace_file.empty();
  return is_planned ? RequestRecord::Since::kPlanned : RequestRecord::Since::kSent;
}

bool is_good(const EndpointBench& bench, const RequestRecord& record) {
  const auto holds = [](const std::optional<double>& limit_ms, std::optional<double> seconds) {
    return !limit_ms || !seconds || *seconds * 1000 <= *limit_ms;
  };
  return record.ok() && holds(bench.slo_ttft_ms, record.ttft(since_of(bench))) &&
         holds(bench.slo_tpot_ms, record.tpot()) && holds(bench.slo_e2e_ms, record.e2e(since_of(bench)));
}

Json errors_of(const std::vector<RequestRecord>& records) {
  std::map<std::string, int> counts;
  for (const RequestRecord& record : records)
    if (!record.ok()) ++counts[record.error.empty() ? "an answer without text" : record.error];
  Json errors = Json::object();
  for (const auto& [error, count] : counts) errors[error] = count;
  return errors;
}

}  // namespace

std::optional<double> RequestRecord::tpot() const {
  if (output_tokens < 2 || text_times.size() < 2) return std::nullopt;
  return (text_times.back() - text_times.front()) / static_cast<double>(output_tokens - 1);
}

void AnswerReader::read(std::string_view bytes, double now) {
  waiting_.append(bytes);
  size_t begin = 0;
  for (size_t end = 0; (end = waiting_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    if (std::exchange(is_in_long_line_, false)) continue;
    std::string_view line = std::string_view(waiting_).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    read_event(line, now);
  }
  waiting_.erase(0, begin);
  if (waiting_.size() <= kMaxEventBytes) return;
  if (record_.error.empty())
    record_.error = fmt::format("a line of the stream has more than {} bytes", kMaxEventBytes);
  is_in_long_line_ = true;  // what follows up to its end is no line of its own
  waiting_.resize(kShownErrorBytes);
}

void AnswerReader::read_event(std::string_view data, double now) {
  if (data == "[DONE]") return void(is_done_ = true);
  const auto event = parse_json(data);
  if (!event || !event->is_object()) {
    if (record_.error.empty()) record_.error = "an event that is no JSON object";
    return;
  }
  if (const auto error = event->find("error"); error != event->end() && !error->is_null()) {
    const bool has_message =
        error->is_object() && error->contains("message") && (*error)["message"].is_string();
    record_.error = has_message ? (*error)["message"].get<std::string>() : to_text(*error);
    return;
  }
  if (brings_text(*event)) record_.text_times.push_back(now);
  const auto usage = event->find("usage");
  if (usage == event->end() || !usage->is_object()) return;
  UsageReader reader;
  record_.input_tokens = reader.count(*usage, "prompt_tokens");
  record_.output_tokens = reader.count(*usage, "completion_tokens");
  if (const auto details = usage->find("prompt_tokens_details");
      details != usage->end() && details->is_object())
    record_.cached_tokens = reader.count(*details, "cached_tokens");
  if (record_.error.empty()) record_.error = reader.fault;
}

void AnswerReader::finish(int status, const std::string& error, double now) {
  record_.ended = now;
  record_.status = status;
  if (status != 0 && status != 200) {
    record_.error = fmt::format("status {}: {}", status, waiting_.substr(0, kShownErrorBytes));
  } else if (!error.empty()) {
    record_.error = error;
  } else if (record_.error.empty() && !is_done_) {
    record_.error = "the stream ended without [DONE]";
  }
  // A server that reports no usage: each event is taken for a token.
  if (record_.output_tokens == 0) record_.output_tokens = static_cast<int64_t>(record_.text_times.size());
}

Spread spread_of(std::vector<double> values) {
  Spread spread{.count = values.size()};
  if (values.empty()) return spread;
  std::sort(values.begin(), values.end());
  // Between the two values that lie around it, as NumPy's percentile does by default.
  const auto percentile = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
  };
  for (const double value : values) spread.mean += value / static_cast<double>(values.size());
  spread.p50 = percentile(0.5);
  spread.p90 = percentile(0.9);
  spread.p99 = percentile(0.99);
  spread.max = values.back();
  return spread;
}

Json summary_of(const EndpointBench& bench, const std::string& source,
                const std::vector<RequestRecord>& records) {
  std::vector<double> ttft, tpot, itl, e2e, lag;
  int64_t input = 0, output = 0, cached = 0;
  size_t good = 0;
  double begin = 0, end = 0;
  for (const RequestRecord& record : records) {
    end = std::max(end, record.ended);
    lag.push_back(record.sent - record.planned);
    if (!record.ok()) continue;
    good += is_good(bench, record) ? 1 : 0;
    ttft.push_back(record.ttft(since_of(bench)));
    if (const auto each = record.tpot()) tpot.push_back(*each);
    e2e.push_back(record.e2e(since_of(bench)));
    for (size_t i = 1; i < record.text_times.size(); ++i)
      itl.push_back(record.text_times[i] - record.text_times[i - 1]);
    input += record.input_tokens;
    output += record.output_tokens;
    cached += record.cached_tokens;
  }
  const double seconds = std::max(end - begin, 1e-9);
  const auto rate = [&](auto count) {
    return std::round(static_cast<double>(count) / seconds * 1000) / 1000;
  };
  const auto optional = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  return {
      {"url", bench.base_url},
      {"model", bench.model},
      {"load", source},
      {"seed", bench.seed},
      {"request_rate",
       bench.request_rate > 0 && bench.trace_file.empty() ? Json(bench.request_rate) : Json()},
      {"max_concurrency", bench.max_concurrency > 0 ? Json(bench.max_concurrency) : Json()},
      {"times_from", since_of(bench) == RequestRecord::Since::kPlanned ? "planned" : "sent"},
      {"seconds", seconds},
      {"requests", records.size()},
      {"completed", e2e.size()},
      {"failed", records.size() - e2e.size()},
      {"errors", errors_of(records)},
      {"input_tokens", input},
      {"output_tokens", output},
      {"cached_tokens", cached},
      {"requests_per_second", rate(e2e.size())},
      {"output_tokens_per_second", rate(output)},
      {"total_tokens_per_second", rate(input + output)},
      {"slo",
       {{"ttft_ms", optional(bench.slo_ttft_ms)},
        {"tpot_ms", optional(bench.slo_tpot_ms)},
        {"e2e_ms", optional(bench.slo_e2e_ms)}}},
      {"goodput_requests_per_second", rate(good)},
      {"good_share", records.empty() ? 0.0 : static_cast<double>(good) / static_cast<double>(records.size())},
      {"ttft_ms", json_of(spread_of(std::move(ttft)))},
      {"tpot_ms", json_of(spread_of(std::move(tpot)))},
      {"itl_ms", json_of(spread_of(std::move(itl)))},
      {"e2e_ms", json_of(spread_of(std::move(e2e)))},
      {"sent_late_ms", json_of(spread_of(std::move(lag)))}};
}

std::string summary_table(const Json& summary) {
  std::string out =
      fmt::format("{} ({})\n", summary["url"].get<std::string>(), summary["load"].get<std::string>());
  const auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("{:28}{}\n", name, value);
  };
  const auto number = [&](const char* key) { return fmt::format("{:.1f}", summary[key].get<double>()); };
  line("requests", fmt::format("{} completed, {} failed, in {:.2f} s", summary["completed"].get<size_t>(),
                               summary["failed"].get<size_t>(), summary["seconds"].get<double>()));
  line("tokens",
       fmt::format("{} in ({} from a cache), {} out", summary["input_tokens"].get<int64_t>(),
                   summary["cached_tokens"].get<int64_t>(), summary["output_tokens"].get<int64_t>()));
  line("requests/s", fmt::format("{:.2f}", summary["requests_per_second"].get<double>()));
  line("output tokens/s", number("output_tokens_per_second"));
  line("tokens/s, in and out", number("total_tokens_per_second"));
  const Json& slo = summary["slo"];
  if (std::any_of(slo.begin(), slo.end(), [](const Json& limit) { return !limit.is_null(); }))
    line("goodput, requests/s",
         fmt::format("{:.2f} ({:.1f} % of all)", summary["goodput_requests_per_second"].get<double>(),
                     100 * summary["good_share"].get<double>()));
  out += fmt::format("{:28}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "mean", "p50", "p90", "p99",
                     "max");
  for (const auto& [key, name] : {std::pair("ttft_ms", "to the first token (TTFT)"),
                                  {"tpot_ms", "by output token (TPOT)"},
                                  {"itl_ms", "between events (ITL)"},
                                  {"e2e_ms", "whole request"},
                                  {"sent_late_ms", "sent late"}}) {
    out += fmt::format("{:28}", name);
    for (const char* column : {"mean", "p50", "p90", "p99", "max"}) {
      const Json& value = summary[key][column];
      out += value.is_null() ? fmt::format("{:>10}", "-") : fmt::format("{:10.2f}", value.get<double>());
    }
    out += '\n';
  }
  for (const auto& [error, count] : summary["errors"].items())
    out += fmt::format("failed {} times: {}\n", count.get<int>(), error);
  return out;
}

}  // namespace lockstep::cli
