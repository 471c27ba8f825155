#include "lockstep/serving/serving_metrics.h"

#include <utility>

namespace lockstep::serving {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

std::vector<double> latency_buckets() { return metrics::exponential_buckets(0.001, 2, 18); }  // 1 ms to 131 s

// One observation goes into our histogram and into those of the same meaning that others have names for.
class Twins {
 public:
  void add(metrics::Histogram& histogram) { histograms_.push_back(&histogram); }
  void observe(double value) const {
    for (metrics::Histogram* histogram : histograms_) histogram->observe(value);
  }

 private:
  std::vector<metrics::Histogram*> histograms_;
};

std::string_view name_of(ChoiceFinish finish) {
  if (finish == ChoiceFinish::kAborted) return "abort";
  return finish == ChoiceFinish::kLength ? "length" : "stop";
}

}  // namespace

struct RequestMetrics {
  RequestMetrics(std::shared_ptr<metrics::Registry> in, metrics::Labels of_model)
      : registry(std::move(in)), model(std::move(of_model)) {
    const auto add = [&](Twins& twins, const char* name, const char* help,
                         const std::vector<double>& buckets) {
      twins.add(registry->histogram(name, help, buckets, model));
    };
    const std::vector<double> seconds = latency_buckets();
    const std::vector<double> tokens = metrics::exponential_buckets(1, 2, 18);
    constexpr const char* kFirst = "From a request's arrival to its first text.";
    constexpr const char* kBetween = "Between one delta of a choice and the next.";
    constexpr const char* kToken = "Between one delta of a choice and the next, by token that came.";
    constexpr const char* kEach = "Of one choice: from its request's first text to its end, by token.";
    constexpr const char* kWhole = "From a request's arrival to its last text.";
    add(first, "vllm:time_to_first_token_seconds", kFirst, seconds);
    add(first, "sglang:time_to_first_token_seconds", kFirst, seconds);
    add(between, "lockstep_inter_token_latency_seconds", kBetween, seconds);
    add(between, "vllm:inter_token_latency_seconds", kBetween, seconds);
    add(token, "sglang:inter_token_latency_seconds", kToken, seconds);
    add(token, "vllm:time_per_output_token_seconds", kToken, seconds);
    add(each, "vllm:request_time_per_output_token_seconds", kEach, seconds);
    add(whole, "vllm:e2e_request_latency_seconds", kWhole, seconds);
    add(whole, "sglang:e2e_request_latency_seconds", kWhole, seconds);
    add(output, "vllm:request_generation_tokens", "Tokens that one choice drew.", tokens);
    // Series that are there from the start can be summed and compared from the start.
    for (const char* reason : {"stop", "length", "abort", "error"}) count_finish(reason, 0);
    count_aborted(0);
  }

  void count_finish(std::string_view reason, double times = 1) {
    metrics::Labels labels = model;
    labels.emplace_back("finished_reason", reason);
    registry->counter("vllm:request_success_total", "Choices by how they ended.", labels).add(times);
  }
  void count_aborted(double times = 1) {
    registry
        ->counter("sglang:num_aborted_requests_total", "Requests that were aborted, or whose clients went.",
                  model)
        .add(times);
  }

  const std::shared_ptr<metrics::Registry> registry;
  const metrics::Labels model;
  Twins first, between, token, each, whole, output;
};

namespace {

class MeasuringListener : public GenerationListener {
 public:
  MeasuringListener(std::shared_ptr<RequestMetrics> requests, std::unique_ptr<GenerationListener> inner,
                    std::string endpoint, Clock::time_point received, int num_choices)
      : requests_(std::move(requests)),
        registry_(*requests_->registry),
        inner_(std::move(inner)),
        endpoint_(std::move(endpoint)),
        received_(received),
        num_open_(num_choices) {}

  // A listener that goes without an end belongs to a client that has gone.
  ~MeasuringListener() override {
    if (is_over_) return;
    count_end("cancelled");
    requests_->count_finish("abort", num_open_);
    requests_->count_aborted();
  }

  void started() override { inner_->started(); }

  void on_deltas(int choice_idx, Deltas deltas, const ChoiceSoFar& so_far) override {
    const auto now = Clock::now();
    if (!first_) {
      first_ = now;
      const double taken = seconds(now - received_);
      histogram("lockstep_time_to_first_token_seconds", "From the request's arrival to its first text.")
          .observe(taken);
      requests_->first.observe(taken);
    }
    if (const auto at = static_cast<size_t>(choice_idx); at < kMostChoicesTimed) {
      if (at >= last_.size()) last_.resize(at + 1);
      if (last_[at].time)
        observe_interval(seconds(now - *last_[at].time), so_far.num_tokens - last_[at].num_tokens);
      last_[at] = {now, so_far.num_tokens};
    }
    inner_->on_deltas(choice_idx, std::move(deltas), so_far);
  }

  void on_prompt(int choice_idx, const std::vector<runtime::OutputToken>& prompt) override {
    inner_->on_prompt(choice_idx, prompt);
  }

  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    requests_->output.observe(end.num_tokens);
    requests_->count_finish(name_of(end.finish));
    --num_open_;
    if (end.finish == ChoiceFinish::kAborted) was_aborted_ = true;
    if (first_ && end.num_tokens > 1) {
      const double each = seconds(Clock::now() - *first_) / (end.num_tokens - 1);
      histogram("lockstep_time_per_output_token_seconds",
                "Of one choice: from its request's first text to its end, by token.")
          .observe(each);
      requests_->each.observe(each);
    }
    inner_->on_choice_end(choice_idx, end);
  }

  void finished() override {
    count_end(was_aborted_ ? "aborted" : "finished");
    if (was_aborted_) requests_->count_aborted();
    inner_->finished();
  }

  void failed(const Error& error) override {
    count_end("failed");
    requests_->count_finish("error", num_open_);
    inner_->failed(error);
  }

 private:
  metrics::Histogram& histogram(const std::string& name, const std::string& help) {
    return registry_.histogram(name, help, latency_buckets(), {{"endpoint", endpoint_}});
  }

  // A step with accepted drafts brings several tokens at once.
  void observe_interval(double taken, int num_tokens) {
    requests_->between.observe(taken);
    for (int i = 0; i < num_tokens; ++i) requests_->token.observe(taken / num_tokens);
  }

  void count_end(const std::string& outcome) {
    is_over_ = true;
    registry_
        .counter("lockstep_generations_total", "Requests that reached the engine, by how they ended.",
                 {{"endpoint", endpoint_}, {"outcome", outcome}})
        .add();
    if (outcome != "finished") return;
    const double taken = seconds(Clock::now() - received_);
    histogram("lockstep_request_seconds", "From the request's arrival to its last text.").observe(taken);
    requests_->whole.observe(taken);
  }

  static constexpr size_t kMostChoicesTimed = 128;

  std::shared_ptr<RequestMetrics> requests_;
  metrics::Registry& registry_;
  std::unique_ptr<GenerationListener> inner_;
  const std::string endpoint_;
  const Clock::time_point received_;
  std::optional<Clock::time_point> first_;
  struct LastDelta {
    std::optional<Clock::time_point> time;
    int num_tokens = 0;  // of the choice, then
  };
  std::vector<LastDelta> last_;  // of each choice
  int num_open_ = 0;             // choices
  bool was_aborted_ = false, is_over_ = false;
};

}  // namespace

ServingMetrics::ServingMetrics(runtime::Engine& engine, std::string model_name)
    : model_({{"model_name", std::move(model_name)}}),
      requests_(std::make_shared<RequestMetrics>(registry_, model_)) {
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
                                                            Clock::time_point received, int num_choices) {
  return std::make_unique<MeasuringListener>(requests_, std::move(listener), endpoint, received, num_choices);
}

void ServingMetrics::refresh(runtime::Engine& engine) {
  const runtime::EngineStats stats = engine.stats();
  refresh_totals(stats);
  refresh_replicas(stats);
  refresh_health(engine.health(), stats);
}

void ServingMetrics::refresh_totals(const runtime::EngineStats& stats) {
  const auto total = [&](const char* name, const char* help, double value,
                         const metrics::Labels& labels = {}) {
    registry_->counter(name, help, labels).raise_to(value);
  };
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  constexpr const char* kPrompt = "Prompt tokens of requests that began, with those that the cache held.";
  constexpr const char* kOutput = "Tokens that were drawn.";
  total("lockstep_steps_total", "Steps that the engine has done.", number(stats.steps));
  total("lockstep_prompt_tokens_total", kPrompt, number(stats.prompt_tokens));
  total("vllm:prompt_tokens_total", kPrompt, number(stats.prompt_tokens), model_);
  total("sglang:prompt_tokens_total", kPrompt, number(stats.prompt_tokens), model_);
  total("lockstep_output_tokens_total", kOutput, number(stats.output_tokens));
  total("vllm:generation_tokens_total", kOutput, number(stats.output_tokens), model_);
  total("sglang:generation_tokens_total", kOutput, number(stats.output_tokens), model_);
  total("lockstep_engine_requests_accepted_total", "Requests that the engine accepted.",
        number(stats.requests_accepted));
  total("sglang:num_requests_total", "Requests that the engine accepted.", number(stats.requests_accepted),
        model_);
  total("lockstep_engine_requests_finished_total", "Requests that ended by themselves.",
        number(stats.requests_finished));
  total("lockstep_engine_requests_cancelled_total", "Requests that were cancelled.",
        number(stats.requests_cancelled));
  total("lockstep_engine_requests_failed_total", "Requests that ended in an error.",
        number(stats.requests_failed));
  constexpr const char* kPreemptions = "Requests that had to give their cache up for a while.";
  total("lockstep_preemptions_total", kPreemptions, number(stats.preemptions));
  total("vllm:num_preemptions_total", kPreemptions, number(stats.preemptions), model_);
  constexpr const char* kLookedUp = "Prompt tokens that were looked up in the cache.";
  constexpr const char* kFound = "Prompt tokens that were found in the cache and not computed.";
  total("lockstep_prefix_tokens_queried_total", kLookedUp, number(stats.prefix_tokens_queried));
  total("vllm:prefix_cache_queries_total", kLookedUp, number(stats.prefix_tokens_queried), model_);
  total("lockstep_prefix_tokens_hit_total", kFound, number(stats.prefix_tokens_hit));
  total("vllm:prefix_cache_hits_total", kFound, number(stats.prefix_tokens_hit), model_);
  total("sglang:cached_tokens_total", kFound, number(stats.prefix_tokens_hit), model_);
  total("lockstep_engine_failures_total", "Failures of the whole engine.", number(stats.failures));
  total("lockstep_engine_restarts_total", "Times that it was started again.", number(stats.restarts));
  const runtime::PhaseSeconds& phases = stats.phases;
  for (const auto& [phase, taken] : {std::pair{"admit", phases.admit},
                                     {"schedule", phases.schedule},
                                     {"upload", phases.upload},
                                     {"forward", phases.forward},
                                     {"sample", phases.sample},
                                     {"commit", phases.commit},
                                     {"deliver", phases.deliver}})
    total("lockstep_step_phase_seconds_total", "Seconds that steps spent in a phase.", taken,
          {{"phase", phase}});
  total("lockstep_drafted_tokens_total", "Drafts that steps verified.", number(stats.drafted_tokens));
  total("lockstep_accepted_tokens_total", "Drafts that became output.", number(stats.accepted_tokens));
  constexpr const char* kAcceptLength = "Tokens that a step with drafts gives a request, on average.";
  registry_->gauge("lockstep_accept_length", kAcceptLength).set(runtime::accept_length(stats));
  registry_->gauge("sglang:spec_accept_length", kAcceptLength, model_).set(runtime::accept_length(stats));
  registry_->gauge("lockstep_last_step_seconds", "How long the last step took.").set(stats.last_step_seconds);
}

void ServingMetrics::refresh_replicas(const runtime::EngineStats& stats) {
  runtime::ReplicaStats sum;
  for (size_t i = 0; i < stats.replicas.size(); ++i) {
    const runtime::ReplicaStats& replica = stats.replicas[i];
    const auto number = std::to_string(i);
    const auto gauge = [&](const char* name, const char* help, double value) {
      registry_->gauge(name, help, {{"replica", number}}).set(value);
    };
    const auto theirs = [&](const char* name, const char* help, const char* label, double value) {
      metrics::Labels labels = model_;
      labels.emplace_back(label, number);
      registry_->gauge(name, help, labels).set(value);
    };
    const double used = static_cast<double>(replica.pages_used),
                 pages = static_cast<double>(replica.pages_total);
    const double usage = pages > 0 ? used / pages : 0;
    constexpr const char* kRunning = "Requests that take part in steps.";
    constexpr const char* kQueued = "Requests that wait to be admitted.";
    constexpr const char* kUsage = "Share of the cache's pages that requests use.";
    gauge("lockstep_running_requests", kRunning, replica.running);
    theirs("vllm:num_requests_running", kRunning, "engine", replica.running);
    theirs("sglang:num_running_reqs", kRunning, "dp_rank", replica.running);
    gauge("lockstep_queued_requests", kQueued, replica.queued);
    theirs("vllm:num_requests_waiting", kQueued, "engine", replica.queued);
    theirs("sglang:num_queue_reqs", kQueued, "dp_rank", replica.queued);
    theirs("vllm:kv_cache_usage_perc", kUsage, "engine", usage);
    theirs("vllm:gpu_cache_usage_perc", kUsage, "engine", usage);  // the older name
    theirs("sglang:token_usage", kUsage, "dp_rank", usage);
    theirs("sglang:num_used_tokens", "Tokens that the pages in use have room for.", "dp_rank",
           used * stats.page_size);
    theirs("sglang:max_total_num_tokens", "Tokens that all pages have room for.", "dp_rank",
           pages * stats.page_size);
    metrics::Labels cache = model_;
    cache.insert(cache.end(), {{"engine", number},
                               {"block_size", std::to_string(stats.page_size)},
                               {"num_gpu_blocks", std::to_string(replica.pages_total)}});
    registry_->gauge("vllm:cache_config_info", "Always 1: the cache is in the labels.", cache).set(1);
    gauge("lockstep_cache_pages_used", "Pages of the cache that requests use.", used);
    gauge("lockstep_cache_pages_cached", "Pages that are out of use and kept for requests that begin alike.",
          static_cast<double>(replica.pages_cached));
    gauge("lockstep_cache_pages_free", "Pages of the cache that hold nothing.",
          static_cast<double>(replica.pages_total - replica.pages_used - replica.pages_cached));
    gauge("lockstep_cache_pages", "Pages of the cache.", pages);
    gauge("lockstep_cache_slots_used", "Places of what is kept once a sequence that are taken.",
          static_cast<double>(replica.slots_used));
    gauge("lockstep_cache_slots", "Places of what is kept once a sequence.",
          static_cast<double>(replica.slots_total));
    sum.running += replica.running;
    sum.queued += replica.queued;
    sum.pages_used += replica.pages_used;
    sum.pages_total += replica.pages_total;
  }
  const auto hit = static_cast<double>(stats.prefix_tokens_hit);
  registry_->gauge("sglang:cache_hit_rate", "Of prompt tokens that were looked up, since the start.", model_)
      .set(stats.prefix_tokens_queried > 0 ? hit / static_cast<double>(stats.prefix_tokens_queried) : 0);
  registry_->gauge("lockstep_engine_running_requests", "Of all replicas together.").set(sum.running);
  registry_->gauge("lockstep_engine_queued_requests", "Of all replicas together.").set(sum.queued);
  registry_->gauge("lockstep_engine_cache_usage_ratio", "Of all replicas together.")
      .set(sum.pages_total > 0 ? static_cast<double>(sum.pages_used) / static_cast<double>(sum.pages_total)
                               : 0);
}

void ServingMetrics::refresh_health(const runtime::Health& health, const runtime::EngineStats& stats) {
  registry_->gauge("lockstep_serving", "1 while the engine serves, 0 when it failed, starts again or drains.")
      .set(health.serving ? 1 : 0);
  registry_->gauge("lockstep_seconds_since_step", "Since all ranks last came to the end of a step.")
      .set(health.seconds_since_step);
  registry_->gauge("lockstep_running_step_seconds", "Of the step that runs; 0: none does.")
      .set(health.step_seconds);
  const auto now = Clock::now();
  const double since = seconds(now - rated_at_);
  if (since >= 1) {
    rate_ = static_cast<double>(stats.output_tokens - rated_tokens_) / since;
    rated_at_ = now;
    rated_tokens_ = stats.output_tokens;
  }
  registry_->gauge("sglang:gen_throughput", "Tokens a second since the numbers were read before.", model_)
      .set(rate_);
}

}  // namespace lockstep::serving
