#pragma once
// What the server counts for Prometheus, and the engine's numbers at the time of asking. Names begin with
// lockstep_.
#include <chrono>
#include <memory>
#include <string>

#include "lockstep/runtime/engine.h"
#include "lockstep/serving/generation.h"
#include "lockstep/serving/metrics/metrics.h"

namespace lockstep::serving {

class ServingMetrics {
 public:
  // The engine must outlive this.
  explicit ServingMetrics(runtime::Engine& engine);

  // One request that was routed to an endpoint ("/v1/chat/completions"; "other" for unknown paths).
  void count_request(const std::string& endpoint);
  // One answer that was an error before the engine had anything to do.
  void count_refusal(const std::string& endpoint, int status);

  // Measures a generation and passes everything on: time to the first delta, time for each further token,
  // whole time, and how it ended. `received`: when the request had been read.
  std::unique_ptr<GenerationListener> measure(std::unique_ptr<GenerationListener> listener,
                                              const std::string& endpoint,
                                              std::chrono::steady_clock::time_point received);

  std::string text() const { return registry_->text(); }

 private:
  void refresh(runtime::Engine& engine);

  // Shared with listeners, which an engine may keep for longer than the server lives.
  std::shared_ptr<metrics::Registry> registry_ = std::make_shared<metrics::Registry>();
};

}  // namespace lockstep::serving
