// What the scheduler costs a step: forming it, committing it, taking the drawn tokens. Ranks wait meanwhile.
#include <benchmark/benchmark.h>

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/runtime/scheduler/scheduler.h"

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
    for (const auto& sequences : input->replicas)
      for (const SequenceRows& rows : sequences) {
        num_rows_ += static_cast<int64_t>(rows.token_ids.size());
        if (rows.wanted == WantedLogits::kNone) continue;
        if (rows.context >= kLongest || (num_ending > 0 && rows.kind == RowKind::kDecode)) {
          --num_ending;
          scheduler_.remove(rows.id);
          scheduler_.add(prompt_of(++last_id_));
        } else {
          scheduler_.append(rows.id, static_cast<int32_t>(mix64(rows.id + ++num_draws_) % 100000));
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
  while (load.num_rows() != replicas * running) load.step(0);  // until all generate
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
