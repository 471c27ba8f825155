#include "lockstep/planning/cost_model.h"

#include <algorithm>

namespace lockstep::planning {
namespace {

constexpr double kMicro = 1e6, kGiga = 1e9, kTera = 1e12;

double bytes_of(double rows, const Machine& machine, const Load& load) {
  return rows * load.hidden * machine.bytes_per_value;
}

// A collective costs its latency and then its bytes.
Estimate over_link(double bytes, const Machine& machine) {
  const double transfer = bytes / (machine.link_gbs * kGiga) * kMicro;
  return {machine.collective_us + transfer, transfer > machine.collective_us ? "link" : "latency"};
}

Estimate over_memory(double bytes, const Machine& machine) {
  const double transfer = bytes / (machine.memory_gbs * kGiga) * kMicro;
  return {machine.launch_us + transfer, transfer > machine.launch_us ? "memory" : "launch"};
}

Estimate sum(const Estimate& a, const Estimate& b) {
  return {a.us + b.us, a.us >= b.us ? a.bound_by : b.bound_by};
}

}  // namespace

double rows_held(const Layout& layout, const RankGrid& grid, int rows_per_replica) {
  const double all = static_cast<double>(rows_per_replica) * grid.num_replicas();
  return all / grid.size(layout.axes_with(Placement::kShard, grid));
}

double wire_bytes(const Step& step, const RankGrid& grid, const Machine& machine, const Load& load) {
  const double n = grid.size(step.over);
  if (n <= 1) return 0;
  const double before = bytes_of(rows_held(step.before, grid, load.rows_per_replica), machine, load);
  switch (step.kind) {
    case StepKind::kAllReduce:
    case StepKind::kFusedAllReduceAddNorm:
      return 2 * (n - 1) / n * before;
    case StepKind::kReduceScatter:
      return (n - 1) / n * before;
    case StepKind::kAllGather:
      return (n - 1) * before;
    case StepKind::kColumnsToRows:
      return (n - 1) / n * before;
    // A row goes to the ranks of its experts: at most top_k of the n, one of which may be its own.
    case StepKind::kDispatch:
    case StepKind::kCombine:
      return std::min<double>(load.top_k, n) * (n - 1) / n * before;
    default:
      return 0;
  }
}

Estimate estimate(const Step& step, const RankGrid& grid, const Machine& machine, const Load& load) {
  const double held = bytes_of(rows_held(step.after, grid, load.rows_per_replica), machine, load);
  switch (step.kind) {
    case StepKind::kSlice:
    case StepKind::kSelect:
      return over_memory(0, machine);
    case StepKind::kSeed:
      return over_memory(2 * held, machine);
    case StepKind::kAdd:
      return over_memory(3 * held, machine);
    case StepKind::kNorm:
      return over_memory(2 * held, machine);
    case StepKind::kDispatch:
    case StepKind::kCombine:
      if (step.over.empty()) return over_memory(2 * held, machine);
      break;
    case StepKind::kFusedAllReduceAddNorm:
      return sum(over_link(wire_bytes(step, grid, machine, load), machine),
                 {3 * held / (machine.memory_gbs * kGiga) * kMicro, "memory"});
    default:
      break;
  }
  return over_link(wire_bytes(step, grid, machine, load), machine);
}

Estimate estimate(const Signature& signature, const RankGrid& grid, const Machine& machine,
                  const Load& load) {
  const double rows = rows_held(signature.needs, grid, load.rows_per_replica);
  const double memory = signature.weight_bytes / (machine.memory_gbs * kGiga) * kMicro;
  const double arithmetic = rows * signature.flops_per_row / (machine.peak_tflops * kTera) * kMicro;
  return {machine.launch_us + std::max(memory, arithmetic), memory > arithmetic ? "memory" : "arithmetic"};
}

double total_us(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load) {
  double us = 0;
  for (const Edge& edge : plan.edges)
    for (const Step& step : edge.steps) us += estimate(step, grid, machine, load).us;
  return us;
}

std::string explain(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load) {
  std::string text;
  double bytes = 0;
  for (const Edge& edge : plan.edges) {
    text += fmt::format("{} -> {}\n", to_text(edge.from), to_text(edge.to));
    for (const Step& step : edge.steps) {
      const Estimate cost = estimate(step, grid, machine, load);
      const double out = wire_bytes(step, grid, machine, load);
      bytes += out;
      text += fmt::format("  {:<26} over {:<8} {:>9.2f} us  {:>10.0f} B out  bound by {}\n",
                          name_of(step.kind), grid.name_of(step.over), cost.us, out, cost.bound_by);
    }
  }
  text += fmt::format("steps: {:.1f} us, {:.0f} bytes out of a rank, for {} rows a replica on {}\n",
                      total_us(plan, grid, machine, load), bytes, load.rows_per_replica, machine.name);
  return text;
}

}  // namespace lockstep::planning
