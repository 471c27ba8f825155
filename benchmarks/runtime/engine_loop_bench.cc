// What the overlapped loop hides: steps of a device that computes for half a millisecond, and sinks that take
// two microseconds an event, beside the plain loop.
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lockstep/runtime/engine_loop.h"
#include "lockstep/runtime/executor/job_threads.h"

namespace lockstep::runtime {
namespace {

constexpr int kVocab = 32;
constexpr auto kComputing = std::chrono::microseconds(500);
constexpr auto kTelling = std::chrono::microseconds(2);

void spin(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) benchmark::ClobberMemory();
}

// One rank whose device is busy and whose host core is not.
class DeviceExecutor final : public Executor {
 public:
  void run(const StepInput& input, const LogitSink& sink) override { run_beside(input, sink, {}); }
  void run_beside(const StepInput& input, const LogitSink& sink,
                  const std::function<void()>& meanwhile) override {
    const auto rank = [&](int) {
      std::this_thread::sleep_for(kComputing);
      std::vector<float> logits(kVocab);
      for (size_t replica = 0; replica < input.replicas.size(); ++replica)
        for (const int32_t row : input.plan.counts[replica].logit_rows) {
          logits.assign(kVocab, 0.0f);
          sink({.replica = static_cast<int>(replica), .row = row, .logits = logits});
        }
    };
    thread_.run(rank, [](int, const std::string&) {}, meanwhile);
  }

 private:
  JobThreads thread_{1, "--tp-size"};
};

// range: overlap, requests that run.
void step(benchmark::State& state) {
  const auto num_requests = static_cast<int32_t>(state.range(1));
  SchedulerLimits limits;
  limits.shape.capacity = {.max_requests = num_requests,
                           .max_rows = num_requests + 512,
                           .max_decode_rows = num_requests,
                           .max_logit_rows = num_requests};
  limits.max_running_requests = num_requests;
  limits.context_length = 1 << 20;
  limits.pages_per_replica = 1 << 20;
  ModelInfo model;
  model.vocab = kVocab;
  const auto engine = make_engine({.model = model,
                                   .limits = limits,
                                   .executor = std::make_unique<DeviceExecutor>(),
                                   .overlap = state.range(0) == 1 ? Overlap::kOn : Overlap::kOff});
  std::atomic<int64_t> num_tokens = 0;
  for (int32_t i = 0; i < num_requests; ++i) {
    Request request{.prompt = {1}, .sampling = {.temperature = 0}, .max_new_tokens = 1 << 19};
    const auto id = engine->submit(std::move(request), [&](const Event& event) {
      spin(kTelling);
      num_tokens += static_cast<int64_t>(event.tokens.size());
    });
    if (!id) return state.SkipWithError(id.error().message.c_str());
  }
  while (num_tokens < 4 * num_requests) std::this_thread::yield();
  const int64_t before = num_tokens;
  int64_t wanted = before;
  for (auto _ : state) {
    wanted += num_requests;
    while (num_tokens < wanted) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  state.counters["tokens_per_second"] =
      benchmark::Counter(static_cast<double>(num_tokens - before), benchmark::Counter::kIsRate);
}
BENCHMARK(step)
    ->ArgNames({"overlap", "running"})
    ->Args({0, 64})
    ->Args({1, 64})
    ->Args({0, 256})
    ->Args({1, 256})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep::runtime
