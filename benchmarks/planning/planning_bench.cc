// What planning costs: a step plan is on the path of every step, solving, planning and proving are on the
// path of a start.
#include <benchmark/benchmark.h>

#include <utility>
#include <vector>

#include "lockstep/planning/configuration.h"

namespace lockstep::planning {
namespace {

// The sizes of DeepSeek-V3 (config.json of the published checkpoint): 61 layers, the first three dense.
ModelShape deepseek_v3() {
  ModelShape model;
  model.hidden = 7168;
  model.vocab = 129280;
  model.num_heads = 128;
  model.layers.assign(3, ModelShape::Ffn::kDense);
  model.layers.insert(model.layers.end(), 58, ModelShape::Ffn::kExperts);
  model.dense_inter = 18432;
  model.num_experts = 256;
  model.top_k = 8;
  model.expert_inter = 2048;
  model.shared_inter = 2048;
  model.attention_params = 187e6;
  return model;
}

ParallelFlags flags_for(int num_ranks) {
  ParallelFlags flags;
  flags.tp_size = num_ranks;
  flags.dp_size = num_ranks / 2;
  flags.enable_dp_attention = true;
  flags.ep_size = num_ranks;
  flags.moe_a2a_backend = "in_process";
  flags.moe_dense_tp_size = 1;
  flags.max_running_requests = 16 * num_ranks;
  return flags;
}

void step_plan(benchmark::State& state) {
  const auto num_replicas = static_cast<int32_t>(state.range(0));
  const StepShape shape{
      .num_replicas = num_replicas,
      .ranks_per_replica = 2,
      .capacity = {.max_requests = 32, .max_rows = 64, .max_decode_rows = 64, .max_logit_rows = 64}};
  std::vector<ReplicaCounts> counts(num_replicas);
  for (int32_t replica = 0; replica < num_replicas; ++replica) {
    counts[replica] = {.num_requests = replica % 32, .num_target_rows = replica % 32};
    for (int32_t row = 0; row < replica % 32; ++row) counts[replica].logit_rows.push_back(row);
  }
  for (auto _ : state) benchmark::DoNotOptimize(make_step_plan(1, shape, counts));
}
BENCHMARK(step_plan)->Arg(1)->Arg(8)->Arg(32)->Unit(benchmark::kMicrosecond);

void solve_and_plan(benchmark::State& state) {
  const auto num_ranks = static_cast<int>(state.range(0));
  const ModelShape model = deepseek_v3();
  const Machine machine = cpu_ranks_machine(num_ranks, num_ranks);
  for (auto _ : state) {
    const auto configuration = solve(flags_for(num_ranks), model, machine);
    const auto plans = make_plans(*configuration, model, machine);
    benchmark::DoNotOptimize(plans->decode.edges.data());
  }
}
BENCHMARK(solve_and_plan)->Arg(4)->Arg(16)->Unit(benchmark::kMillisecond);

void prove_plans(benchmark::State& state) {
  const auto num_ranks = static_cast<int>(state.range(0));
  const ModelShape model = deepseek_v3();
  const Machine machine = cpu_ranks_machine(num_ranks, num_ranks);
  const auto configuration = solve(flags_for(num_ranks), model, machine);
  const auto plans = make_plans(*configuration, model, machine);
  for (auto _ : state)
    if (!prove(*plans, configuration->capacity))
      state.SkipWithError("the plans of this configuration are wrong");
}
BENCHMARK(prove_plans)->Arg(4)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace lockstep::planning
