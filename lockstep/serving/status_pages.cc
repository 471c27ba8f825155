#include "lockstep/serving/status_pages.h"

#include <condition_variable>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::serving {
namespace {

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// True when the query has format=json.
bool wants_json(std::string_view query) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    if (query.substr(0, end) == "format=json") return true;
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return false;
}

using State = runtime::Health::State;

std::string_view name_of(State state) {
  switch (state) {
    case State::kServing:
      return "serving";
    case State::kDraining:
      return "draining";
    case State::kRestarting:
      return "restarting";
    case State::kFailed:
      return "failed";
    case State::kStopping:
      return "stopping";
  }
  return "failed";
}

enum class Verdict : unsigned char { kGood, kSick };

Verdict good_if(bool is_good) { return is_good ? Verdict::kGood : Verdict::kSick; }

http::Response health_response(const runtime::Health& health, Verdict verdict) {
  const bool is_good = verdict == Verdict::kGood;
  Json body = {{"status", is_good ? "ok" : "unavailable"},
               {"state", name_of(health.state)},
               {"seconds_since_step", health.seconds_since_step},
               {"step_seconds", health.step_seconds},
               {"failures", health.failures},
               {"restarts", health.restarts}};
  if (!health.reason.empty()) body["reason"] = health.reason;
  http::Response response{.status = is_good ? 200 : 503, .body = to_text(body)};
  response.headers.push_back({"Cache-Control", "no-store"});
  if (!is_good) response.headers.push_back({"Retry-After", "1"});
  return response;
}

Json phases_json(const runtime::PhaseSeconds& phases) {
  return {{"admit", phases.admit},     {"schedule", phases.schedule}, {"upload", phases.upload},
          {"forward", phases.forward}, {"sample", phases.sample},     {"commit", phases.commit},
          {"deliver", phases.deliver}};
}

// What the engine's thread says to the one that waits for a probe.
struct ProbeBoard {
  std::mutex mutex;
  std::condition_variable changed;
  size_t num_good = 0;
  std::string failure;
};

runtime::EventSink probe_sink(const std::shared_ptr<ProbeBoard>& board, size_t replica) {
  return [board, replica](const runtime::Event& event) {
    if (event.finish == runtime::FinishReason::kNotFinished) return;
    const std::lock_guard lock(board->mutex);
    const bool is_good =
        event.finish == runtime::FinishReason::kLength || event.finish == runtime::FinishReason::kStop;
    if (is_good) {
      ++board->num_good;
    } else if (board->failure.empty()) {
      board->failure = fmt::format("replica {}: {}", replica,
                                   event.error.empty() ? "the request was cancelled" : event.error);
    }
    board->changed.notify_all();
  };
}

}  // namespace

double RateMeter::update(uint64_t total, Clock::time_point now) {
  constexpr std::chrono::seconds kWindow{10};
  constexpr std::chrono::milliseconds kSpacing{250};
  // One sample older than the window stays, as the window's beginning.
  while (samples_.size() > 1 && now - samples_[1].time >= kWindow) samples_.pop_front();
  double rate = 0;
  if (!samples_.empty() && now > samples_.front().time)
    rate = static_cast<double>(total - samples_.front().total) /
           std::chrono::duration<double>(now - samples_.front().time).count();
  if (samples_.empty() || now - samples_.back().time >= kSpacing) samples_.push_back({now, total});
  return rate;
}

StatusPages::StatusPages(runtime::Engine& engine, ServingMetrics& metrics, std::string model_name)
    : engine_(engine), metrics_(metrics), model_name_(std::move(model_name)) {}

void StatusPages::health(const http::Request& /*request*/, const Responder& responder) const {
  const runtime::Health health = engine_.health();
  responder->send(health_response(health, good_if(health.serving)));
}

void StatusPages::ready(const http::Request& /*request*/, const Responder& responder) {
  const runtime::Health health = engine_.health();
  responder->send(health_response(health, good_if(health.serving && health.state == State::kServing)));
}

void StatusPages::livez(const http::Request& /*request*/, const Responder& responder) {
  const runtime::Health health = engine_.health();
  responder->send(health_response(health, good_if(health.state != State::kFailed)));
}

void StatusPages::health_generate(const http::Request& /*request*/, const Responder& responder) {
  constexpr size_t kMostWaiting = 16;
  if (prober_.queue()->size() >= kMostWaiting)
    return responder->send(
        {.status = 503,
         .headers = {{"Retry-After", "1"}},
         .body = to_text(
             {{"status", "unavailable"}, {"reason", fmt::format("{} probes wait already", kMostWaiting)}})});
  prober_.queue()->push([this, responder] {
    if (!responder->connected()) return;
    const std::string failure = probe_failure();
    runtime::Health health = engine_.health();
    if (!failure.empty()) health.reason = failure;
    responder->send(health_response(health, good_if(failure.empty())));
  });
}

std::string StatusPages::probe_failure() {
  constexpr std::chrono::seconds kPatience{20};
  const auto board = std::make_shared<ProbeBoard>();
  const size_t num_replicas = engine_.stats().replicas.size();
  std::vector<runtime::RequestId> ids;
  for (size_t replica = 0; replica < num_replicas; ++replica) {
    runtime::Request request{.prompt = {0}, .max_new_tokens = 1, .ignore_eos = true};
    request.sampling.temperature = 0;
    request.replica = static_cast<int>(replica);
    request.label = "health_generate";
    request.blame = runtime::Request::Blame::kExempt;
    const auto id = engine_.submit(std::move(request), probe_sink(board, replica));
    if (!id) return id.error().message;
    ids.push_back(*id);
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::unique_lock lock(board->mutex);
  while (board->num_good < num_replicas && board->failure.empty() && !is_stopping_ &&
         std::chrono::steady_clock::now() < deadline)
    board->changed.wait_for(lock, std::chrono::milliseconds(100));
  if (board->num_good == num_replicas) return "";
  const std::string failure = !board->failure.empty()
                                  ? board->failure
                                  : fmt::format("{} of {} replicas gave a token within {} s", board->num_good,
                                                num_replicas, kPatience.count());
  lock.unlock();
  for (const runtime::RequestId id : ids) engine_.cancel(id);
  return failure;
}

void StatusPages::stop() {
  is_stopping_ = true;
  prober_.stop();
}

void StatusPages::live(const http::Request& /*request*/, const Responder& responder) {
  const runtime::EngineStats stats = engine_.stats();
  const auto now = RateMeter::Clock::now();
  Json replicas = Json::array();
  for (const runtime::ReplicaStats& replica : stats.replicas)
    replicas.push_back({{"running", replica.running},
                        {"queued", replica.queued},
                        {"pages_used", replica.pages_used},
                        {"pages_cached", replica.pages_cached},
                        {"pages_total", replica.pages_total}});
  const Json live = {{"model", model_name_},
                     {"uptime_seconds", std::chrono::duration<double>(now - started_).count()},
                     {"num_ranks", stats.num_ranks},
                     {"replicas", std::move(replicas)},
                     {"tokens_per_second", rate_.update(stats.output_tokens, now)},
                     {"rows_per_rank", stats.last_step_rows},
                     {"steps", stats.steps},
                     {"state", name_of(engine_.health().state)},
                     {"restarts", stats.restarts},
                     {"phase_seconds", phases_json(stats.phases)},
                     {"last_step_seconds", stats.last_step_seconds}};
  responder->send({.headers = {{"Cache-Control", "no-store"}}, .body = to_text(live)});
}

void StatusPages::metrics(const http::Request& /*request*/, const Responder& responder) const {
  responder->send({.content_type = std::string(metrics::kContentType), .body = metrics_.text()});
}

void StatusPages::server_info(const http::Request& /*request*/, const Responder& responder) const {
  const runtime::ModelInfo& model = engine_.model();
  const runtime::EngineStats stats = engine_.stats();
  responder->send({.body = to_text({{"model_path", model.directory},
                                    {"tokenizer_path", model.directory},
                                    {"served_model_name", model_name_},
                                    {"context_length", model.context_length},
                                    {"tp_size", stats.num_ranks},
                                    {"dp_size", stats.replicas.size()},
                                    {"status", engine_.health().serving ? "ready" : "unavailable"}})});
}

void StatusPages::plan(const http::Request& request, const Responder& responder) const {
  if (wants_json(request.query)) return responder->send({.body = to_text(engine_.plan_json())});
  responder->send({.content_type = "text/html; charset=utf-8",
                   .body = fmt::format(
                       "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                       "<meta name=\"viewport\" content=\"width=device-width\"><title>{0}: plan</title>\n"
                       "<style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem;color-scheme:light dark}}"
                       "pre{{overflow-x:auto;font:13px/1.45 ui-monospace,monospace}}</style></head>\n"
                       "<body><h1>The communication plan of {0}</h1>\n"
                       "<p><a href=\"?format=json\">as JSON</a></p>\n<pre>{1}</pre></body></html>\n",
                       html_escaped(model_name_), html_escaped(engine_.plan_text()))});
}

}  // namespace lockstep::serving
