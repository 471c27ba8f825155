// lockstep bench: how fast an engine decodes at some batch sizes and takes prompts, measured from its events.
// The engine runs in this process: no HTTP, no tokenizer. With --base-url bench_endpoint.cc measures instead.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"
#include "lockstep/runtime/step_floor.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<int32_t> random_prompt(uint64_t seed, int length, int vocab) {
  std::vector<int32_t> ids;
  for (int at = 0; at < length; ++at)
    ids.push_back(static_cast<int32_t>(uniform_draw(seed, static_cast<uint64_t>(at)) * vocab));
  return ids;
}

using Times = std::vector<std::vector<Clock::time_point>>;

// When each request's tokens came. The requests' sinks share it: they may outlive whoever reads it.
class Arrivals {
 public:
  explicit Arrivals(size_t requests) : times_(requests) {}

  void note(size_t request, const runtime::Event& event) {
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    for (size_t token = 0; token < event.tokens.size(); ++token) times_[request].push_back(now);
    if (!event.error.empty() && error_.empty()) error_ = event.error;
    if (event.finish == runtime::FinishReason::kNotFinished) return;
    ++done_;
    changed_.notify_all();
  }
  // Until so many have ended. What failed first, "" when nothing did.
  std::string wait(size_t requests) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= requests; });
    return error_;
  }
  const Times& times() const { return times_; }  // after wait()

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Times times_;
  std::string error_;
  size_t done_ = 0;
};

struct Load {
  int requests = 1, prompt = 1, output = 1;
  uint64_t seed = 1;
};

// Every prompt is computed, whatever was measured before.
Result<Times> run_load(runtime::Engine& engine, const Load& load) {
  engine.clear_cache();
  const auto arrivals = std::make_shared<Arrivals>(static_cast<size_t>(load.requests));
  std::vector<runtime::RequestId> accepted;
  for (size_t at = 0; at < static_cast<size_t>(load.requests); ++at) {
    runtime::Request request{.prompt = random_prompt(load.seed + at, load.prompt, engine.model().vocab),
                             .sampling = {.temperature = 0},
                             .max_new_tokens = load.output,
                             .ignore_eos = true};
    const auto id = engine.submit(std::move(request),
                                  [arrivals, at](const runtime::Event& event) { arrivals->note(at, event); });
    if (!id) {
      for (const runtime::RequestId earlier : accepted) engine.cancel(earlier);
      arrivals->wait(accepted.size());
      return id.error();
    }
    accepted.push_back(*id);
  }
  if (const std::string error = arrivals->wait(accepted.size()); !error.empty())
    return Error{ErrorCode::kInternal, error, ""};
  return arrivals->times();
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Tokens a second while all requests decode: from the second token of the last to the last of the first.
// Nothing where they never do.
std::optional<double> decode_rate(const Times& times) {
  for (const auto& one : times)
    if (one.size() < 2) return std::nullopt;
  Clock::time_point from = times[0][1], to = times[0].back();
  for (const auto& one : times) {
    from = std::max(from, one[1]);
    to = std::min(to, one.back());
  }
  if (to <= from) return std::nullopt;
  double tokens = 0;
  for (const auto& one : times)
    for (const auto at : one) tokens += at > from && at <= to ? 1 : 0;
  return tokens / seconds_between(from, to);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// What is measured, once all of it is known to be possible.
struct Measures {
  std::vector<int> batches, prompts;
  int context = 0, output = 0, repeats = 1;
};

Result<Measures> measures_of(const BenchCommand& command, const runtime::PlannedEngine& planned) {
  const int length = planned.model.context_length, running = planned.configuration.max_running_requests;
  if (length < 4)
    return invalid_argument("--context-length", "--context-length {}: bench needs at least 4 tokens", length);
  Measures measures{.batches = command.batches, .repeats = command.repeats};
  measures.context = command.context.value_or(std::min(512, length));
  measures.output = command.output.value_or(std::clamp(measures.context / 2, 3, 64));
  measures.prompts = command.prompts;
  if (measures.prompts.empty()) measures.prompts.push_back(std::min(8192, length - 1));
  std::erase(measures.prompts, 0);
  if (measures.batches.empty()) {
    for (const int batch : {1, 16})
      if (batch < running) measures.batches.push_back(batch);
    measures.batches.push_back(running);
  }
  for (const int batch : measures.batches)
    if (batch > running)
      return invalid_argument("--batch",
                              "--batch {}: only {} requests run at once; raise --max-running-requests", batch,
                              running);
  if (measures.context > length)
    return invalid_argument("--context", "--context {} is above the context length {}", measures.context,
                            length);
  if (measures.output >= measures.context)
    return invalid_argument("--output", "--output {} leaves no prompt of --context {}", measures.output,
                            measures.context);
  for (const int prompt : measures.prompts)
    if (prompt >= length)
      return invalid_argument("--prompt-length",
                              "--prompt-length {} leaves no token of the context length {}", prompt, length);
  return measures;
}

// Nothing where the requests of some repeat never decode all at once.
Result<std::optional<double>> measure_decode(runtime::Engine& engine, const Measures& measures, int batch) {
  std::vector<double> rates;
  for (int repeat = 0; repeat < measures.repeats; ++repeat) {
    const auto times = run_load(engine, {.requests = batch,
                                         .prompt = measures.context - measures.output,
                                         .output = measures.output,
                                         .seed = static_cast<uint64_t>(1000 * repeat + 1)});
    if (!times) return times.error();
    const std::optional<double> rate = decode_rate(*times);
    if (!rate) return rate;
    rates.push_back(*rate);
  }
  return std::optional(median(rates));
}

Result<double> measure_prefill(runtime::Engine& engine, const Measures& measures, int prompt) {
  std::vector<double> rates;
  for (int repeat = 0; repeat <= measures.repeats; ++repeat) {
    const auto from = Clock::now();
    const auto times = run_load(engine, {.prompt = prompt, .seed = static_cast<uint64_t>(repeat + 7)});
    if (!times) return times.error();
    if (repeat > 0) rates.push_back(prompt / seconds_between(from, times->front().front()));
  }
  return median(rates);
}

constexpr const char* kNeverAtOnce =
    "its requests never all decode at once: raise --output, --chunked-prefill-size or --max-total-tokens";

// Behind a rate: the share of what the floor allows.
std::string share_text(const Json& one) {
  if (!one.contains("share_of_floor")) return "";
  return fmt::format("; {:5.1f} % of {:.1f}: {:.2f} GB, {:.1f} GFLOP",
                     100 * one["share_of_floor"].get<double>(), one["floor_tokens_per_second"].get<double>(),
                     one["needs_bytes"].get<double>() * 1e-9, one["needs_flops"].get<double>() * 1e-9);
}

void print(OutputFormat format, const Json& result) {
  if (format == OutputFormat::kJson) {
    fmt::print("{}\n", to_text(result));
    return;
  }
  if (result.contains("roofs"))
    fmt::print("{} threads read {:.1f} GB/s and do {:.0f} GFLOP/s in float32\n",
               result["roofs"]["threads"].get<int>(), result["roofs"]["read_gb_per_second"].get<double>(),
               result["roofs"]["gflop_per_second"].get<double>());
  for (const Json& one : result["decode"]) {
    const Json& rate = one["tokens_per_second"];
    fmt::print("decode, batch {:4}, context {}: {}{}\n", one["batch"].get<int>(),
               result["context"].get<int>(),
               rate.is_null() ? fmt::format("not measured: {}", kNeverAtOnce)
                              : fmt::format("{:9.1f} tokens/s", rate.get<double>()),
               share_text(one));
  }
  for (const Json& one : result["prefill"])
    fmt::print("prefill, prompt {:5}:           {:9.1f} tokens/s{}\n", one["prompt"].get<int>(),
               one["tokens_per_second"].get<double>(), share_text(one));
  fmt::print("ready after {:.2f} s\n", result["start_seconds"].get<double>());
}

Status choose_model(const BenchCommand& command, runtime::EngineConfig& config) {
  if (!command.config_file.empty()) {
    const std::filesystem::path file = command.config_file;
    if (file.filename() != "config.json")
      return invalid_argument("--config", "--config {} does not name a config.json", command.config_file);
    config.model_directory = file.parent_path().empty() ? "." : file.parent_path().string();
  }
  if (config.model_directory.empty())
    return invalid_argument("--model", "{} of --model and --config is given; one is needed", 0);
  return Done{};
}

// tokens: of a step.
void add_floor(Json& one, const runtime::StepNeeds& needs, double tokens,
               const std::optional<runtime::MachineRoofs>& roofs) {
  if (!roofs) return;
  const double floor = tokens / runtime::floor_seconds(needs, *roofs);
  one["needs_bytes"] = needs.bytes;
  one["needs_flops"] = needs.flops;
  one["floor_tokens_per_second"] = floor;
  if (!one["tokens_per_second"].is_null())
    one["share_of_floor"] = one["tokens_per_second"].get<double>() / floor;
}

Result<Json> measure(runtime::Engine& engine, const Measures& measures, const planning::ModelShape& shape,
                     const std::optional<runtime::MachineRoofs>& roofs) {
  Json result = {{"context", measures.context}, {"decode", Json::array()}, {"prefill", Json::array()}};
  for (const int batch : measures.batches) {
    const auto rate = measure_decode(engine, measures, batch);
    if (!rate) return rate.error();
    Json one = {{"batch", batch}, {"tokens_per_second", nullptr}};
    if (*rate) {
      one["tokens_per_second"] = **rate;
    } else {
      one["not_measured"] = kNeverAtOnce;
    }
    // Halfway through its output a sequence has so many tokens.
    add_floor(one, runtime::decode_needs(shape, batch, measures.context - measures.output / 2), batch, roofs);
    result["decode"].push_back(std::move(one));
  }
  for (const int prompt : measures.prompts) {
    const auto rate = measure_prefill(engine, measures, prompt);
    if (!rate) return rate.error();
    Json one = {{"prompt", prompt}, {"tokens_per_second", *rate}};
    add_floor(one, runtime::prompt_needs(shape, prompt), prompt, roofs);
    result["prefill"].push_back(std::move(one));
  }
  return result;
}

}  // namespace

int run(const BenchCommand& command) {
  if (!command.endpoint.base_url.empty()) {
    EndpointBench bench = command.endpoint;
    bench.model = command.engine.model_directory;
    bench.format = command.format;
    return run(bench);
  }
  runtime::EngineConfig config = command.engine;
  if (const Status status = choose_model(command, config); !status) return report(status.error());
  const auto planned = runtime::plan_engine(config);
  if (!planned) return report(planned.error());
  const auto measures = measures_of(command, *planned);
  if (!measures) return report(measures.error());
  const bool on_gpu = config.device == runtime::Device::kCuda;
  if (config.weights == runtime::EngineConfig::Weights::kRandom && !on_gpu)
    log_warning(
        "random weights lie over each other in 64 MB on the CPU: its caches may hold more of them than of "
        "real "
        "weights, and what is measured is then too fast");
  const auto roofs = runtime::measure_roofs(config, *planned);
  const auto from = Clock::now();
  auto engine = runtime::start_engine(config, progress_lines());
  if (!engine) return report(engine.error());
  const double start_seconds = seconds_between(from, Clock::now());
  auto result = measure(**engine, *measures, planned->shape, roofs);
  if (!result) return report(result.error());
  (*result)["model"] = (*engine)->model().name;
  (*result)["start_seconds"] = start_seconds;
  if (roofs)
    (*result)["roofs"] = {{"threads", roofs->threads},
                          {"read_gb_per_second", roofs->read_bytes_per_second * 1e-9},
                          {"gflop_per_second", roofs->flops_per_second * 1e-9}};
  (*result)["device"] = on_gpu ? "cuda" : "cpu";
  print(command.format, *result);
  return kOk;
}

}  // namespace lockstep::cli
