#pragma once
// What the server counts for Prometheus, and the engine's numbers at the time of asking: under names of our
// own (lockstep_), and under those that dashboards and autoscalers for vLLM and SGLang read. Of a gauge there
// is one series a replica, right in sum; what must not be summed has one series for the engine under
// lockstep_engine_.
#include <chrono>
#include <memory>
#include <string>

#include "lockstep/runtime/engine.h"
#include "lockstep/serving/generation.h"
#include "lockstep/serving/metrics/metrics.h"

namespace lockstep::serving {

struct RequestMetrics;  // the histograms of requests, made once

class ServingMetrics {
 public:
  // The engine must outlive this.
  ServingMetrics(runtime::Engine& engine, std::string model_name);

  // One request that was routed to an endpoint ("/v1/chat/completions"; "other" for unknown paths).
  void count_request(const std::string& endpoint);
  // One answer that was an error before the engine had anything to do.
  void count_refusal(const std::string& endpoint, int status);

  // Measures a generation and passes everything on: time to the first delta, time for each further token,
  // whole time, and how it ended. `received`: when the request had been read.
  std::unique_ptr<GenerationListener> measure(std::unique_ptr<GenerationListener> listener,
                                              const std::string& endpoint,
                                              std::chrono::steady_clock::time_point received,
                                              int num_choices);

  std::string text() const { return registry_->text(); }

 private:
  void refresh(runtime::Engine& engine);
  void refresh_totals(const runtime::EngineStats& stats);
  void refresh_replicas(const runtime::EngineStats& stats);
  void refresh_health(const runtime::Health& health, const runtime::EngineStats& stats);

  const metrics::Labels model_;  // what others' names are labelled with
  // Shared with listeners, which an engine may keep for longer than the server lives.
  std::shared_ptr<metrics::Registry> registry_ = std::make_shared<metrics::Registry>();
  std::shared_ptr<RequestMetrics> requests_;
  // For a rate that is asked for as a gauge; whoever refreshes is alone.
  std::chrono::steady_clock::time_point rated_at_ = std::chrono::steady_clock::now();
  uint64_t rated_tokens_ = 0;
  double rate_ = 0;
};

}  // namespace lockstep::serving
