#include "lockstep/serving/serving_metrics.h"

#include <utility>

namespace lockstep::serving {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

std::vector<double> latency_buckets() { return metrics::exponential_buckets(0.001, 2, 18); }  // 1 ms to 131 s

class MeasuringListener : public GenerationListener {
 public:
  MeasuringListener(std::shared_ptr<metrics::Registry> registry, std::unique_ptr<GenerationListener> inner,
                    std::string endpoint, Clock::time_point received)
      : registry_(std::move(registry)),
        inner_(std::move(inner)),
        endpoint_(std::move(endpoint)),
        received_(received) {}

  // A listener that goes without an end belongs to a client that has gone.
  ~MeasuringListener() override {
    if (!is_over_) count_end("cancelled");
  }

  void started() override { inner_->started(); }

  void on_deltas(int choice_idx, Deltas deltas, const std::vector<runtime::OutputToken>& tokens) override {
    if (!first_) {
      first_ = Clock::now();
      histogram("lockstep_time_to_first_token_seconds", "From the request's arrival to its first text.")
          .observe(seconds(*first_ - received_));
    }
    inner_->on_deltas(choice_idx, std::move(deltas), tokens);
  }

  void on_prompt(int choice_idx, const std::vector<runtime::OutputToken>& prompt) override {
    inner_->on_prompt(choice_idx, prompt);
  }

  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    if (first_ && end.num_tokens > 1)
      histogram("lockstep_time_per_output_token_seconds",
                "Of one choice: from its request's first text to its end, by token.")
          .observe(seconds(Clock::now() - *first_) / (end.num_tokens - 1));
    inner_->on_choice_end(choice_idx, end);
  }

  void finished() override {
    count_end("finished");
    inner_->finished();
  }

  void failed(const Error& error) override {
    count_end("failed");
    inner_->failed(error);
  }

 private:
  metrics::Histogram& histogram(const std::string& name, const std::string& help) {
    return registry_->histogram(name, help, latency_buckets(), {{"endpoint", endpoint_}});
  }

  void count_end(const std::string& outcome) {
    is_over_ = true;
    registry_
        ->counter("lockstep_generations_total", "Requests that reached the engine, by how they ended.",
                  {{"endpoint", endpoint_}, {"outcome", outcome}})
        .add();
    if (outcome == "finished")
      histogram("lockstep_request_seconds", "From the request's arrival to its last text.")
          .observe(seconds(Clock::now() - received_));
  }

  std::shared_ptr<metrics::Registry> registry_;
  std::unique_ptr<GenerationListener> inner_;
  const std::string endpoint_;
  const Clock::time_point received_;
  std::optional<Clock::time_point> first_;
  bool is_over_ = false;
};

}  // namespace

ServingMetrics::ServingMetrics(runtime::Engine& engine) {
  registry_->before_text([this, &engine] { refresh(engine); });
}

void ServingMetrics::count_request(const std::string& endpoint) {
  registry_->counter("lockstep_http_requests_total", "Requests by endpoint.", {{"endpoint", endpoint}}).add();
}

void ServingMetrics::count_refusal(const std::string& endpoint, int status) {
  registry_
      ->counter("lockstep_refused_requests_total",
                "Requests that were answered with an error before they reached the engine.",
                {{"endpoint", endpoint}, {"status", std::to_string(status)}})
      .add();
}

std::unique_ptr<GenerationListener> ServingMetrics::measure(std::unique_ptr<GenerationListener> listener,
                                                            const std::string& endpoint,
                                                            Clock::time_point received) {
  return std::make_unique<MeasuringListener>(registry_, std::move(listener), endpoint, received);
}

void ServingMetrics::refresh(runtime::Engine& engine) {
  const runtime::EngineStats stats = engine.stats();
  const auto total = [&](const char* name, const char* help, uint64_t value) {
    registry_->counter(name, help).raise_to(static_cast<double>(value));
  };
  total("lockstep_steps_total", "Steps that the engine has done.", stats.steps);
  total("lockstep_prompt_tokens_total", "Prompt tokens that were computed.", stats.prompt_tokens);
  total("lockstep_output_tokens_total", "Tokens that were drawn.", stats.output_tokens);
  total("lockstep_engine_requests_accepted_total", "Requests that the engine accepted.",
        stats.requests_accepted);
  total("lockstep_engine_requests_finished_total", "Requests that ended by themselves.",
        stats.requests_finished);
  total("lockstep_engine_requests_cancelled_total", "Requests that were cancelled.",
        stats.requests_cancelled);
  total("lockstep_engine_requests_failed_total", "Requests that ended in an error.", stats.requests_failed);
  total("lockstep_preemptions_total", "Requests that had to give their cache up for a while.",
        stats.preemptions);
  total("vllm:prefix_cache_queries_total", "Prompt tokens that were looked up in the cache.",
        stats.prefix_tokens_queried);
  total("vllm:prefix_cache_hits_total", "Prompt tokens that were found in the cache and not computed.",
        stats.prefix_tokens_hit);
  total("sglang:cached_tokens_total", "Prompt tokens that were found in the cache and not computed.",
        stats.prefix_tokens_hit);
  registry_->gauge("lockstep_last_step_seconds", "How long the last step took.").set(stats.last_step_seconds);
  registry_->gauge("lockstep_serving", "1 while the engine serves, 0 when it failed or drains.")
      .set(engine.health().serving ? 1 : 0);
  for (size_t i = 0; i < stats.replicas.size(); ++i) {
    const runtime::ReplicaStats& replica = stats.replicas[i];
    const auto gauge = [&](const char* name, const char* help, double value) {
      registry_->gauge(name, help, {{"replica", std::to_string(i)}}).set(value);
    };
    gauge("lockstep_running_requests", "Requests that take part in steps.", replica.running);
    gauge("lockstep_queued_requests", "Requests that wait to be admitted.", replica.queued);
    gauge("lockstep_cache_pages_used", "Pages of the cache that requests use.",
          static_cast<double>(replica.pages_used));
    gauge("lockstep_cache_pages_cached", "Pages that are out of use and kept for requests that begin alike.",
          static_cast<double>(replica.pages_cached));
    gauge("lockstep_cache_pages_free", "Pages of the cache that hold nothing.",
          static_cast<double>(replica.pages_total - replica.pages_used - replica.pages_cached));
    gauge("lockstep_cache_pages", "Pages of the cache.", static_cast<double>(replica.pages_total));
    gauge("lockstep_cache_slots_used", "Places of what is kept once a sequence that are taken.",
          static_cast<double>(replica.slots_used));
    gauge("lockstep_cache_slots", "Places of what is kept once a sequence.",
          static_cast<double>(replica.slots_total));
  }
}

}  // namespace lockstep::serving
