#include "lockstep/cli/bench_load.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numbers>
#include <optional>

#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"

namespace lockstep::cli {
namespace {

constexpr int kMaxLength = 1 << 22;
constexpr size_t kMaxTraceBytes = size_t{1} << 30;
constexpr int kTokensOfBlock = 512;  // that one hash of a trace stands for, as Mooncake's traces have it

// Streams of draws of one seed, apart from each other.
enum Stream : uint64_t { kArrival = 1, kInput, kOutput, kText, kPrefix, kPrefixText, kBlock };

uint64_t seed_of(uint64_t seed, Stream stream, uint64_t n = 0) {
  return mix64(seed ^ mix64((uint64_t{stream} << 32) ^ n));
}

constexpr const char* kWords[] = {
    "the",   "of",    "and",  "to",   "in",   "is",    "that", "for",  "it",   "as",    "was",
    "with",  "be",    "by",   "on",   "not",  "he",    "this", "are",  "or",   "his",   "from",
    "at",    "which", "but",  "have", "an",   "had",   "they", "you",  "were", "their", "one",
    "all",   "we",    "can",  "her",  "has",  "there", "been", "if",   "more", "when",  "will",
    "would", "who",   "so",   "no",   "out",  "up",    "said", "what", "its",  "about", "than",
    "into",  "them",  "time", "only", "some", "could", "new",  "two",  "may"};

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

// A request's body in the words of the API that is asked.
Json body_of(const EndpointBench& bench, Json prompt, int max_tokens) {
  Json body = Json::object();
  if (!bench.model.empty()) body["model"] = bench.model;
  if (bench.api == EndpointBench::Api::kChat) {
    body["messages"] = prompt.is_array() ? std::move(prompt)
                                         : Json::array({{{"role", "user"}, {"content", std::move(prompt)}}});
  } else {
    body["prompt"] = std::move(prompt);
  }
  body["max_tokens"] = max_tokens;
  body["temperature"] = bench.temperature;
  if (bench.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  return body;
}

Result<LoadPlan> draw_load(const EndpointBench& bench) {
  const auto input = parse_lengths(bench.input_tokens, "--input-tokens");
  if (!input) return input.error();
  const auto output = parse_lengths(bench.output_tokens, "--output-tokens");
  if (!output) return output.error();
  LoadPlan plan;
  double at = 0;
  for (int i = 0; i < bench.num_requests; ++i) {
    const auto n = static_cast<uint64_t>(i);
    // Poisson arrivals: gaps are exponential.
    if (bench.request_rate > 0 && i > 0)
      at += -std::log1p(-uniform_draw(seed_of(bench.seed, kArrival), n)) / bench.request_rate;
    std::string text;
    if (bench.prefix_tokens > 0) {
      const auto which =
          static_cast<uint64_t>(uniform_draw(seed_of(bench.seed, kPrefix), n) * bench.num_prefixes);
      text = words(seed_of(bench.seed, kPrefixText, which), bench.prefix_tokens) + " ";
    }
    text += words(seed_of(bench.seed, kText, n), input->draw(seed_of(bench.seed, kInput), n));
    const int max_tokens = output->draw(seed_of(bench.seed, kOutput), n);
    plan.requests.push_back({at, body_of(bench, std::move(text), max_tokens), max_tokens});
  }
  plan.source = fmt::format("{} requests, input {}{}, output {}", bench.num_requests, bench.input_tokens,
                            bench.prefix_tokens > 0 ? fmt::format(" behind {} prefixes of {}",
                                                                  bench.num_prefixes, bench.prefix_tokens)
                                                    : "",
                            bench.output_tokens);
  return plan;
}

// One line of a trace: when, what, and how much is wanted.
Result<PlannedRequest> read_traced(const EndpointBench& bench, std::string_view line, int number) {
  const std::string where = fmt::format("--trace line {}", number);
  const auto refuse = [&](std::string_view why) { return invalid_argument("--trace", "{}: {}", where, why); };
  const auto json = parse_json(line);
  if (!json) return refuse(json.error().message);
  if (!json->is_object()) return refuse("is no JSON object");
  const auto whole = [&](const char* key) -> std::optional<int> {
    const auto found = json->find(key);
    if (found == json->end() || !found->is_number()) return std::nullopt;
    const double value = found->get<double>();
    return value >= 1 && value <= kMaxLength ? std::optional(static_cast<int>(value)) : std::nullopt;
  };
  const Json at = json->value("timestamp", Json(0));
  if (!at.is_number() || !(at.get<double>() >= 0)) return refuse("timestamp must be milliseconds from 0 on");
  const auto output = whole("output_length");
  if (!output) return refuse(fmt::format("output_length must be from 1 to {}", kMaxLength));
  Json prompt;
  if (json->contains("messages")) {
    prompt = (*json)["messages"];
    if (bench.api != EndpointBench::Api::kChat || !prompt.is_array())
      return refuse("messages must be an array, for --api chat");
  } else if (json->contains("prompt")) {
    prompt = (*json)["prompt"];
    if (!prompt.is_string()) return refuse("prompt must be text");
  } else {
    const auto input = whole("input_length");
    if (!input)
      return refuse(fmt::format("has no messages, no prompt, and no input_length from 1 to {}", kMaxLength));
    // Requests with the same hashes begin alike.
    std::string text;
    int num_tokens = 0;
    const Json hashes = json->value("hash_ids", Json::array());
    for (size_t i = 0; hashes.is_array() && i < hashes.size() && num_tokens < *input; ++i) {
      if (!hashes[i].is_number_integer()) return refuse("hash_ids must be whole numbers");
      const int count = std::min(kTokensOfBlock, *input - num_tokens);
      text += words(seed_of(bench.seed, kBlock, hashes[i].get<uint64_t>()), count) + " ";
      num_tokens += count;
    }
    if (num_tokens < *input)
      text += words(seed_of(bench.seed, kText, static_cast<uint64_t>(number)), *input - num_tokens);
    prompt = std::move(text);
  }
  return PlannedRequest{at.get<double>() / 1000 / bench.trace_speed,
                        body_of(bench, std::move(prompt), *output), *output};
}

Result<LoadPlan> read_trace(const EndpointBench& bench) {
  const auto text = read_file(bench.trace_file, kMaxTraceBytes);
  if (!text) return text.error();
  LoadPlan plan{.requests = {}, .source = fmt::format("the trace {}", bench.trace_file)};
  int number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    if (line.find_first_not_of(" \r\t") == line.npos) continue;
    if (bench.num_requests_given && plan.requests.size() >= static_cast<size_t>(bench.num_requests)) break;
    auto request = read_traced(bench, line, number);
    if (!request) return request.error();
    plan.requests.push_back(*std::move(request));
  }
  if (plan.requests.empty())
    return invalid_argument("--trace", "--trace {} holds no request", bench.trace_file);
  std::stable_sort(
      plan.requests.begin(), plan.requests.end(),
      [](const PlannedRequest& a, const PlannedRequest& b) { return a.at_seconds < b.at_seconds; });
  const double first = plan.requests.front().at_seconds;
  for (PlannedRequest& request : plan.requests) request.at_seconds -= first;
  return plan;
}

}  // namespace

int LengthDistribution::draw(uint64_t seed, uint64_t n) const {
  double value = low;
  if (kind == Kind::kUniform) {
    value = std::floor(low + uniform_draw(seed, n) * (high - low + 1));
    value = std::min(value, high);
  } else {
    // Box and Muller.
    const double radius = std::sqrt(-2 * std::log1p(-uniform_draw(seed, 2 * n)));
    value = std::round(low + high * radius * std::cos(2 * std::numbers::pi * uniform_draw(seed, 2 * n + 1)));
  }
  return static_cast<int>(std::clamp(value, 1.0, static_cast<double>(kMaxLength)));
}

Result<LengthDistribution> parse_lengths(std::string_view text, std::string_view flag) {
  const auto refuse = [&] {
    return invalid_argument(std::string(flag),
                            "{} {}: give a number of tokens, as 512, 128-1024 or normal:512:128, of 1 to {}",
                            flag, text, kMaxLength);
  };
  LengthDistribution lengths;
  std::optional<double> low, high;
  if (text.starts_with("normal:")) {
    lengths.kind = LengthDistribution::Kind::kNormal;
    const std::string_view rest = text.substr(7);
    const size_t colon = rest.find(':');
    if (colon == rest.npos) return refuse();
    low = number_in(rest.substr(0, colon));
    high = number_in(rest.substr(colon + 1));
    if (high && *high < 0) return refuse();
  } else {
    const size_t dash = text.find('-', 1);
    low = number_in(text.substr(0, dash));
    high = dash == text.npos ? low : number_in(text.substr(dash + 1));
    if (low && high && (*high < *low || *low != std::floor(*low) || *high != std::floor(*high)))
      return refuse();
  }
  if (!low || !high || *low < 1 || *low > kMaxLength || *high > kMaxLength) return refuse();
  lengths.low = *low;
  lengths.high = *high;
  return lengths;
}

std::string words(uint64_t seed, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[static_cast<size_t>(uniform_draw(seed, static_cast<uint64_t>(i)) * std::size(kWords))];
  }
  return text;
}

Result<LoadPlan> plan_load(const EndpointBench& bench) {
  return bench.trace_file.empty() ? draw_load(bench) : read_trace(bench);
}

}  // namespace lockstep::cli
