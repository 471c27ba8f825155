// lockstep bench --base-url: how an endpoint with OpenAI's API answers under a load, seen from a client.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <utility>

#include "lockstep/cli/bench_load.h"
#include "lockstep/cli/bench_plot.h"
#include "lockstep/cli/bench_record.h"
#include "lockstep/cli/report.h"
#include "lockstep/serving/http/client.h"

namespace lockstep::cli {
namespace {

using serving::http::Client;
using Clock = Client::Clock;

constexpr std::chrono::milliseconds kLookForInterrupt{100};

// Sends a plan's requests when they are due, and keeps what came of each.
class LoadRun {
 public:
  LoadRun(const EndpointBench& bench, const serving::http::Url& url, Client& client, const LoadPlan& plan)
      : bench_(bench), client_(client), plan_(plan), records_(plan.requests.size()), start_(Clock::now()) {
    target_ = url.path + (bench.api == EndpointBench::Api::kChat ? "/chat/completions" : "/completions");
    headers_ = {{"Content-Type", "application/json"}, {"Accept", "text/event-stream"}};
    std::string key = bench.api_key;
    if (const char* given = std::getenv("OPENAI_API_KEY"); key.empty() && given != nullptr) key = given;
    if (!key.empty()) headers_.push_back({"Authorization", "Bearer " + key});
  }

  std::vector<RequestRecord> run() {
    for (size_t i = 0; i < records_.size(); ++i) {
      records_[i].planned = plan_.requests[i].at_seconds;
      client_.at(start_ + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(records_[i].planned)),
                 [this, i] {
                   due_.push_back(i);
                   send_due();
                 });
    }
    watch();
    client_.run();
    return std::move(records_);
  }

  bool was_interrupted() const { return is_interrupted_; }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void send_due() {
    while (!due_.empty() && (bench_.max_concurrency == 0 || num_open_ < bench_.max_concurrency)) {
      const size_t i = due_.front();
      due_.pop_front();
      ++num_open_;
      const auto reader = std::make_shared<AnswerReader>(records_[i]);
      records_[i].sent = now();
      client_.send(
          {.target = target_, .headers = headers_, .body = to_text(plan_.requests[i].body)}, nullptr,
          [this, reader](std::string_view bytes) { reader->read(bytes, now()); },
          [this, reader](const serving::http::ClientOutcome& outcome) {
            reader->finish(outcome.status, outcome.error, now());
            --num_open_;
            ++num_ended_;
            if (bench_.format == OutputFormat::kText)
              progress_.show(fmt::format("{} of {} requests", num_ended_, records_.size()));
            send_due();
          });
    }
  }

  void watch() {
    if (num_ended_ == records_.size()) return;
    if (interrupted().load() != 0) {
      is_interrupted_ = true;
      due_.clear();
      return client_.stop();
    }
    client_.at(Clock::now() + kLookForInterrupt, [this] { watch(); });
  }

  const EndpointBench& bench_;
  Client& client_;
  const LoadPlan& plan_;
  std::string target_;
  std::vector<serving::http::Header> headers_;
  std::vector<RequestRecord> records_;
  std::deque<size_t> due_;
  const Clock::time_point start_;
  int num_open_ = 0;
  size_t num_ended_ = 0;
  bool is_interrupted_ = false;
  ProgressLine progress_;
};

Result<std::vector<RequestRecord>> measure(const EndpointBench& bench, const serving::http::Url& url,
                                           const LoadPlan& plan) {
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(bench.timeout_seconds * 1000));
  auto client = Client::make(url, timeout);
  if (!client) return client.error();
  LoadRun run(bench, url, **client, plan);
  std::vector<RequestRecord> records = run.run();
  if (run.was_interrupted()) return Error{ErrorCode::kUnavailable, "interrupted", ""};
  return records;
}

// The first requests of a server are slow for reasons of their own.
Status warm_up(const EndpointBench& bench, const serving::http::Url& url) {
  if (bench.num_warmup == 0) return Done{};
  EndpointBench warm = bench;
  warm.num_requests = bench.num_warmup;
  warm.request_rate = 0;
  warm.trace_file.clear();
  warm.seed = bench.seed + 1;
  const auto plan = plan_load(warm);
  if (!plan) return plan.error();
  const auto records = measure(warm, url, *plan);
  if (!records) return records.error();
  for (const RequestRecord& record : *records)
    if (!record.ok())
      return Error{
          ErrorCode::kUnavailable,
          fmt::format("a warm-up request failed: {}", record.error.empty() ? "no text" : record.error), ""};
  return Done{};
}

Status write_records(const std::string& path, const std::vector<RequestRecord>& records) {
  std::ofstream file(path, std::ios::binary);
  for (const RequestRecord& record : records)
    file << to_text({{"planned", record.planned},
                     {"sent", record.sent},
                     {"ended", record.ended},
                     {"text_times", record.text_times},
                     {"input_tokens", record.input_tokens},
                     {"output_tokens", record.output_tokens},
                     {"status", record.status},
                     {"error", record.error}})
         << '\n';
  file.close();
  if (!file) return invalid_argument("--records", "--records {} cannot be written", path);
  return Done{};
}

}  // namespace

int run(const EndpointBench& bench) {
  interrupted();  // from now on Ctrl-C ends the load and not the program
  const auto url = serving::http::parse_url(bench.base_url);
  if (!url) return report(url.error());
  const auto plan = plan_load(bench);
  if (!plan) return report(plan.error());
  if (const Status warm = warm_up(bench, *url); !warm)
    return interrupted().load() != 0 ? kInterrupted : report(warm.error());
  const auto records = measure(bench, *url, *plan);
  if (!records) return interrupted().load() != 0 ? kInterrupted : report(records.error());
  const Json summary = summary_of(bench, plan->source, *records);
  fmt::print("{}", bench.format == OutputFormat::kJson ? to_text(summary) + "\n" : summary_table(summary));
  if (!bench.plot_file.empty())
    if (const Status written = write_plot(bench.plot_file, summary, *records); !written)
      return report(written.error());
  if (!bench.records_file.empty())
    if (const Status written = write_records(bench.records_file, *records); !written)
      return report(written.error());
  return summary["failed"] == 0 ? kOk : kFailed;
}

}  // namespace lockstep::cli
