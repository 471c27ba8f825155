#include "lockstep/serving/status_pages.h"

#include <string_view>
#include <utility>

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
  if (health.serving) return responder->send({.body = R"({"status":"ok"})"});
  responder->send({.status = 503, .body = to_text({{"status", "unavailable"}, {"reason", health.reason}})});
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
                     {"steps", stats.steps}};
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
