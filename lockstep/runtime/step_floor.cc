#include "lockstep/runtime/step_floor.h"

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/cpu/roofs.h"

namespace lockstep::runtime {
namespace {

constexpr double kPlainBytes = 2;  // of a number of the router and the head, which no format quantizes

// Weights that `rows` rows meet in all layers, without the head: those that a row multiplies with, and bytes
// of those that any of them does.
StepNeeds layer_needs(const planning::ModelShape& shape, double rows) {
  double active = 0, bytes = 0;
  const double hidden = shape.hidden;
  const auto take = [&](double params, double bytes_each) {
    active += params;
    bytes += params * bytes_each;
  };
  for (const planning::ModelShape::Ffn ffn : shape.layers) {
    take(shape.attention_params, shape.bytes_per_weight);
    if (ffn == planning::ModelShape::Ffn::kDense) {
      take(3 * hidden * shape.dense_inter, shape.bytes_per_weight);
      continue;
    }
    take(hidden * shape.num_experts, std::max(kPlainBytes, shape.bytes_per_weight));
    take(3 * hidden * shape.shared_inter, shape.bytes_per_weight);
    const double expert = 3 * hidden * shape.expert_inter;
    const double untouched = std::pow(1 - double{1} * shape.top_k / shape.num_experts, rows);
    active += shape.top_k * expert;
    bytes += (1 - untouched) * shape.num_experts * expert * shape.bytes_per_weight;
  }
  return {.bytes = bytes, .flops = 2 * active * rows};
}

StepNeeds with_head(StepNeeds needs, const planning::ModelShape& shape, double rows) {
  const double params = double{1} * shape.hidden * shape.vocab;
  needs.bytes += params * std::max(kPlainBytes, shape.bytes_per_weight);
  needs.flops += 2 * params * rows;
  return needs;
}

}  // namespace

StepNeeds decode_needs(const planning::ModelShape& shape, int batch, int context) {
  StepNeeds needs = with_head(layer_needs(shape, batch), shape, batch);
  needs.bytes += double{1} * batch * context * shape.cache_values_per_token * shape.cache_bytes_per_value;
  return needs;
}

StepNeeds prompt_needs(const planning::ModelShape& shape, int tokens) {
  return with_head(layer_needs(shape, tokens), shape, 1);
}

std::optional<MachineRoofs> measure_roofs(const EngineConfig& config, const PlannedEngine& planned) {
  if (config.device != Device::kCpu) return std::nullopt;
  const int ranks = planned.plans.grid.num_ranks();
  const int cores = kernels::cpu_threads_of_a_rank(std::nullopt, 1).count;
  const int threads = std::min(cores, ranks * kernels::cpu_threads_of_a_rank(config.threads, ranks).count);
  const auto roofs = kernels::measure_cpu_roofs({.count = threads});
  return MachineRoofs{.read_bytes_per_second = roofs.read_bytes_per_second,
                      .flops_per_second = roofs.flops_per_second,
                      .threads = threads};
}

double floor_seconds(const StepNeeds& needs, const MachineRoofs& roofs) {
  return std::max(needs.bytes / roofs.read_bytes_per_second, needs.flops / roofs.flops_per_second);
}

}  // namespace lockstep::runtime
