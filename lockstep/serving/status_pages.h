#pragma once
// What the server says about itself: /health and its kin, /live, /metrics, /plan and /get_server_info.
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "lockstep/runtime/engine.h"
#include "lockstep/serving/http/http.h"
#include "lockstep/serving/serving_metrics.h"
#include "lockstep/serving/task_queue.h"

namespace lockstep::serving {

// The number of tokens a second, from totals that are seen now and then. Not for several threads at once.
class RateMeter {
 public:
  using Clock = std::chrono::steady_clock;
  // The mean over the last ten seconds, or since the sample before, should that be older.
  double update(uint64_t total, Clock::time_point now);

 private:
  struct Sample {
    Clock::time_point time;
    uint64_t total;
  };
  std::deque<Sample> samples_;
};

class StatusPages {
 public:
  using Responder = std::shared_ptr<http::Responder>;

  // Engine and metrics must outlive this.
  StatusPages(runtime::Engine& engine, ServingMetrics& metrics, std::string model_name);

  // Steps end in time on every rank, or would: cheap. 503 with the reason otherwise.
  void health(const http::Request& request, const Responder& responder) const;
  // New requests are taken. What a load balancer asks.
  void ready(const http::Request& request, const Responder& responder);
  // 503 only once nothing but a new process helps. What decides on killing it asks this.
  void livez(const http::Request& request, const Responder& responder);
  // One token of every replica, drawn for this answer, within 20 s.
  void health_generate(const http::Request& request, const Responder& responder);
  // On one thread only: it keeps the samples of the rate.
  void live(const http::Request& request, const Responder& responder);
  void metrics(const http::Request& request, const Responder& responder) const;
  // SGLang's words for what the engine is.
  void server_info(const http::Request& request, const Responder& responder) const;
  void plan(const http::Request& request, const Responder& responder) const;

  // Gives up the probe that runs and takes no more.
  void stop();

 private:
  std::string probe_failure();  // empty: every replica gave its token

  runtime::Engine& engine_;
  ServingMetrics& metrics_;
  const std::string model_name_;
  const RateMeter::Clock::time_point started_ = RateMeter::Clock::now();
  RateMeter rate_;
  std::atomic<bool> is_stopping_{false};
  Workers prober_{1};  // waits for what /health_generate asked the engine
};

}  // namespace lockstep::serving
