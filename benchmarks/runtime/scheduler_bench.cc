// What the scheduler costs a step: forming it, committing it, taking the drawn tokens. Ranks wait meanwhile.
// And what the whole step loop does: with the draws' books and the events that tell of each token.
#include <benchmark/benchmark.h>

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/runtime/scheduler/scheduler.h"
#include "lockstep/runtime/step_loop.h"

namespace lockstep::runtime {
namespace {

SchedulerLimits limits_for(int32_t num_replicas, int32_t running_per_replica, PrefixCache cache) {
  SchedulerLimits limits;
  limits.shape.num_replicas = num_replicas;
  limits.shape.ranks_per_replica = 2;
  limits.shape.capacity = {.max_requests = running_per_replica,
                           .max_rows = running_per_replica + 512,
                           .max_decode_rows = running_per_replica,
                           .max_logit_rows = running_per_replica};
  limits.max_running_requests = num_replicas * running_per_replica;
  limits.chunked_prefill_size = 512;
  limits.page_size = 16;
  limits.pages_per_replica = running_per_replica * 260;
  limits.context_length = 4096;
  limits.prefix_cache = cache;
  return limits;
}

// Prompts of about 1,000 tokens, of which a quarter begins like many others.
NewSequence prompt_of(RequestId id) {
  NewSequence sequence{.id = id};
  for (uint64_t i = 0; i < 600 + id * 37 % 900; ++i)
    sequence.prompt.push_back(
        static_cast<int32_t>((i < 256 ? mix64(i + 1000 * (id % 4)) : mix64(i + 5000 * id)) % 100000));
  return sequence;
}

class Load {
 public:
  Load(const SchedulerLimits& limits, int32_t num_open) : scheduler_(limits) {
    for (int32_t i = 0; i < num_open; ++i) scheduler_.add(prompt_of(++last_id_));
  }
  // A step, at whose end some of the sequences that generate end, and as many new ones come.
  void step(int32_t num_ending) {
    std::optional<StepInput> input = scheduler_.next();
    scheduler_.commit();
    num_rows_ = 0;
    for (size_t replica = 0; replica < input->replicas.size(); ++replica)
      for (size_t i = 0; i < input->replicas[replica].size(); ++i) {
        const SequenceRows& rows = input->replicas[replica][i];
        scheduler_.fetch_ahead(static_cast<int32_t>(replica), input->replicas[replica], i);
        num_rows_ += static_cast<int64_t>(rows.token_ids.size());
        if (rows.wanted == WantedLogits::kNone) continue;
        if (rows.context >= kLongest || (num_ending > 0 && rows.kind == RowKind::kDecode)) {
          --num_ending;
          scheduler_.remove(rows.id);
          scheduler_.add(prompt_of(++last_id_));
        } else {
          scheduler_.append(static_cast<int32_t>(replica), rows,
                            static_cast<int32_t>(mix64(rows.id + ++num_draws_) % 100000));
        }
      }
    scheduler_.recycle(*std::move(input));
  }
  int64_t num_rows() const { return num_rows_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  static constexpr int32_t kLongest = 4000;
  Scheduler scheduler_;
  RequestId last_id_ = 0;
  uint64_t num_draws_ = 0;
  int64_t num_rows_ = 0;
};

// range: replicas, running a replica, requests that end every eighth step.
void step(benchmark::State& state) {
  const auto replicas = static_cast<int32_t>(state.range(0));
  const auto running = static_cast<int32_t>(state.range(1));
  Load load(limits_for(replicas, running, PrefixCache::kOn), replicas * running);
  // Until all that run generate, and all but a few run: a replica may have one too many and another one too
  // few, which nobody moves for so little.
  const int32_t most = replicas * running;
  while (load.scheduler().num_running() < most - most / 64 ||
         load.num_rows() != load.scheduler().num_running())
    load.step(0);
  int64_t num_steps = 0;
  for (auto _ : state) load.step(++num_steps % 8 == 0 ? static_cast<int32_t>(state.range(2)) : 0);
  state.counters["running"] = load.scheduler().num_running();
  state.counters["rows"] = static_cast<double>(load.num_rows());
}
BENCHMARK(step)
    ->ArgNames({"replicas", "running", "ending"})
    ->Args({8, 32, 0})
    ->Args({8, 32, 1})
    ->Args({1, 256, 0})
    ->Args({1, 256, 1})
    ->Args({32, 256, 0})
    ->Args({32, 256, 32})
    ->Unit(benchmark::kMicrosecond);

// Ranks that take no time.
class InstantExecutor final : public Executor {
 public:
  void run(const StepInput& input, const LogitSink& sink) override {
    for (size_t replica = 0; replica < input.replicas.size(); ++replica)
      for (const int32_t row : input.plan.counts[replica].logit_rows)
        sink({.replica = static_cast<int>(replica), .row = row, .largest = row % 1000});
  }
};

// range: replicas, running a replica.
void loop(benchmark::State& state) {
  const auto replicas = static_cast<int32_t>(state.range(0));
  const auto running = static_cast<int32_t>(state.range(1));
  InstantExecutor executor;
  StepLoop loop({.limits = limits_for(replicas, running, PrefixCache::kOn),
                 .vocabulary = {.num_logits = 100000, .num_valid_tokens = 100000},
                 .eos_token_ids = {}},
                executor);
  uint64_t num_tokens = 0;
  RequestId last_id = 0;
  const auto admit = [&] {
    NewSequence sequence = prompt_of(++last_id);
    Request request{.prompt = std::move(sequence.prompt)};
    request.sampling.temperature = 0;
    request.max_new_tokens = 2400;
    loop.admit({.id = last_id, .request = std::move(request), .sink = [&](const Event& event) {
                  num_tokens += event.tokens.size();
                }});
  };
  for (int32_t i = 0; i < replicas * running; ++i) admit();
  const auto step = [&] {
    loop.step();
    loop.deliver();
  };
  const int32_t most = replicas * running;
  while (loop.scheduler().num_running() < most - most / 64) step();
  for (int i = 0; i < 64; ++i) step();  // what is left of prompts
  for (auto _ : state) step();
  state.counters["running"] = loop.scheduler().num_running();
}
BENCHMARK(loop)
    ->ArgNames({"replicas", "running"})
    ->Args({8, 32})
    ->Args({1, 256})
    ->Args({32, 256})
    ->Unit(benchmark::kMicrosecond);

// A request that arrives: its pages' keys, and the replica that suits it.
void arrival(benchmark::State& state) {
  const auto replicas = static_cast<int32_t>(state.range(0));
  Scheduler scheduler(limits_for(replicas, 8, PrefixCache::kOn));
  RequestId id = 0;
  for (auto _ : state) {
    NewSequence sequence = prompt_of(++id);
    scheduler.add(std::move(sequence));
    scheduler.remove(id);
  }
}
BENCHMARK(arrival)->ArgName("replicas")->Arg(8)->Arg(32)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep::runtime
