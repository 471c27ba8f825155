// lockstep bench: how fast an engine decodes at some batch sizes and takes prompts, measured from its events.
// The engine runs in this process: no HTTP, no tokenizer.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>

#include "lockstep/base/hash.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<int32_t> random_prompt(uint64_t seed, int length, int vocab) {
  std::vector<int32_t> ids;
  for (int at = 0; at < length; ++at)
    ids.push_back(static_cast<int32_t>(uniform_draw(seed, static_cast<uint64_t>(at)) * vocab));
  return ids;
}

// When each request's tokens came.
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
  // What failed first, "" when nothing did.
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == times_.size(); });
    return error_;
  }
  const std::vector<std::vector<Clock::time_point>>& times() const { return times_; }  // after wait()

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<Clock::time_point>> times_;
  std::string error_;
  size_t done_ = 0;
};

struct Load {
  int requests = 1, prompt = 1, output = 1;
  uint64_t seed = 1;
};

Result<std::vector<std::vector<Clock::time_point>>> run_load(runtime::Engine& engine, const Load& load) {
  Arrivals arrivals(static_cast<size_t>(load.requests));
  for (size_t at = 0; at < static_cast<size_t>(load.requests); ++at) {
    runtime::Request request{.prompt = random_prompt(load.seed + at, load.prompt, engine.model().vocab),
                             .sampling = {.temperature = 0},
                             .max_new_tokens = load.output,
                             .ignore_eos = true};
    const auto id = engine.submit(std::move(request),
                                  [&arrivals, at](const runtime::Event& event) { arrivals.note(at, event); });
    if (!id) return id.error();
  }
  if (const std::string error = arrivals.wait(); !error.empty())
    return Error{ErrorCode::kInternal, error, ""};
  return arrivals.times();
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Tokens a second while all requests decode: from the second token of the last to the last of the first.
double decode_rate(const std::vector<std::vector<Clock::time_point>>& times) {
  Clock::time_point from = times[0][1], to = times[0].back();
  for (const auto& one : times) {
    from = std::max(from, one[1]);
    to = std::min(to, one.back());
  }
  double tokens = 0;
  for (const auto& one : times)
    for (const auto at : one) tokens += at > from && at <= to ? 1 : 0;
  return to > from ? tokens / seconds_between(from, to) : 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

Result<double> measure_decode(runtime::Engine& engine, const BenchCommand& command, int batch) {
  std::vector<double> rates;
  for (int repeat = 0; repeat < command.repeats; ++repeat) {
    const auto times = run_load(engine, {.requests = batch,
                                         .prompt = std::max(1, command.context - command.output),
                                         .output = command.output,
                                         .seed = static_cast<uint64_t>(1000 * repeat + 1)});
    if (!times) return times.error();
    rates.push_back(decode_rate(*times));
  }
  return median(rates);
}

Result<double> measure_prefill(runtime::Engine& engine, const BenchCommand& command) {
  std::vector<double> rates;
  for (int repeat = 0; repeat <= command.repeats; ++repeat) {
    const auto from = Clock::now();
    const auto times =
        run_load(engine, {.prompt = command.prompt, .seed = static_cast<uint64_t>(repeat + 7)});
    if (!times) return times.error();
    if (repeat > 0) rates.push_back(command.prompt / seconds_between(from, times->front().front()));
  }
  return median(rates);
}

void print(const BenchCommand& command, const Json& result) {
  if (command.format == OutputFormat::kJson) {
    fmt::print("{}\n", to_text(result));
    return;
  }
  for (const Json& one : result["decode"])
    fmt::print("decode, batch {:4}, context {}: {:9.1f} tokens/s\n", one["batch"].get<int>(), command.context,
               one["tokens_per_second"].get<double>());
  if (result.contains("prefill"))
    fmt::print("prefill, prompt {}:           {:9.1f} tokens/s\n", command.prompt,
               result["prefill"]["tokens_per_second"].get<double>());
}

}  // namespace

int run(const BenchCommand& command) {
  runtime::EngineConfig config = command.engine;
  if (!command.config_file.empty()) {
    const std::filesystem::path file = command.config_file;
    if (file.filename() != "config.json")
      return report(
          invalid_argument("--config", "--config {} does not name a config.json", command.config_file));
    config.model_directory = file.parent_path().empty() ? "." : file.parent_path().string();
  }
  if (config.model_directory.empty())
    return report(invalid_argument("--model", "{} of --model and --config is given; one is needed", 0));
  auto engine = runtime::start_engine(config, progress_lines());
  if (!engine) return report(engine.error());
  Json result = {{"model", (*engine)->model().name},
                 {"device", config.device == runtime::Device::kCuda ? "cuda" : "cpu"},
                 {"context", command.context},
                 {"decode", Json::array()}};
  for (const int batch : command.batches) {
    const auto rate = measure_decode(**engine, command, batch);
    if (!rate) return report(rate.error());
    result["decode"].push_back({{"batch", batch}, {"tokens_per_second", *rate}});
  }
  if (command.prompt > 0) {
    const auto rate = measure_prefill(**engine, command);
    if (!rate) return report(rate.error());
    result["prefill"] = {{"prompt", command.prompt}, {"tokens_per_second", *rate}};
  }
  print(command, result);
  return kOk;
}

}  // namespace lockstep::cli
