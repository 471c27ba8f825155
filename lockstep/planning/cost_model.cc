#include "lockstep/planning/cost_model.h"

#include <algorithm>
#include <cmath>

namespace lockstep::planning {
namespace {

constexpr double kMicro = 1e6, kGiga = 1e9, kTera = 1e12;

double bytes_of(double rows, const Machine& machine, const Load& load) {
  return rows * load.hidden * machine.bytes_per_value;
}

// A collective costs its latency and then its bytes; those within a host and those between hosts flow at the
// same time.
Estimate over_link(double bytes, AxisSet over, const RankGrid& grid, const Machine& machine) {
  const double remote = share_between_hosts(over, grid, machine);
  const double within = (1 - remote) * bytes / (machine.link_gbs * kGiga) * kMicro;
  if (remote == 0)
    return {machine.collective_us + within, within > machine.collective_us ? "link" : "latency"};
  const double between = remote * bytes / (machine.host_link_gbs * kGiga) * kMicro;
  const double latency = machine.collective_us + machine.host_collective_us,
               transfer = std::max(within, between);
  return {latency + transfer, latency >= transfer ? "latency" : within > between ? "link" : "host link"};
}

Estimate over_memory(double bytes, const Machine& machine) {
  const double transfer = bytes / (machine.memory_gbs * kGiga) * kMicro;
  return {machine.launch_us + transfer, transfer > machine.launch_us ? "memory" : "launch"};
}

// Calls f(step, load) for every step, with the load that holds there.
template <class F>
void for_each_step(const Plan& plan, const Load& load, F f) {
  Load now = load;
  for (const Edge& edge : plan.edges)
    for (const Step& step : edge.steps) {
      if (step.kind == StepKind::kSelect) now = after_select(load);
      f(step, load_on(edge.from.kind, now));
    }
}

Estimate sum(const Estimate& a, const Estimate& b) {
  return {a.us + b.us, a.us >= b.us ? a.bound_by : b.bound_by};
}

}  // namespace

Load after_select(const Load& load) {
  Load selected = load;
  if (load.logit_rows_per_replica > 0)
    selected.rows_per_replica = std::min(load.rows_per_replica, load.logit_rows_per_replica);
  return selected;
}

Load load_on(StageKind from, const Load& load) {
  Load narrow = load;
  if (from == StageKind::kLatents && load.latent > 0) narrow.hidden = load.latent;
  return narrow;
}

double rows_held(const Layout& layout, const RankGrid& grid, int rows_per_replica) {
  const double all = static_cast<double>(rows_per_replica) * grid.num_replicas();
  return all / grid.size(layout.axes_with(Placement::kShard, grid));
}

double share_between_hosts(AxisSet over, const RankGrid& grid, const Machine& machine) {
  const int n = grid.size(over);
  if (machine.ranks_per_host <= 0 || n <= 1) return 0;
  // Ranks are numbered host by host, and groups look alike: that of rank 0 stands for all.
  int local = 0;
  for (const int member : grid.group(0, over)) local += member < machine.ranks_per_host;
  return static_cast<double>(n - local) / (n - 1);
}

double wire_bytes(const Step& step, const RankGrid& grid, const Machine& machine, const Load& load) {
  const double n = grid.size(step.over);
  if (n <= 1) return 0;
  const double before = bytes_of(rows_held(step.before, grid, load.rows_per_replica), machine, load);
  switch (step.kind) {
    case StepKind::kAllReduce:
    case StepKind::kFusedAllReduceAddNorm:
    case StepKind::kFusedScatterAddNormGather:
      return 2 * (n - 1) / n * before;
    case StepKind::kReduceScatter:
      return (n - 1) / n * before;
    case StepKind::kAllGather:
      return (n - 1) * before;
    // A rank holds 1/n of the features of all rows and keeps the part of the rows at home with it.
    case StepKind::kColumnsToRows:
      return (n - 1) / n * before / n * (load.vocab > 0 ? static_cast<double>(load.vocab) / load.hidden : 1);
    // A row goes to the ranks of its experts: at most top_k of the n, one of which may be its own.
    case StepKind::kDispatch:
    case StepKind::kCombine:
    case StepKind::kFusedCombineAdd:
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
    // One launch; what its parts would have written and read again in between stays where it is.
    case StepKind::kFusedCombineAdd:
      if (step.over.empty()) return over_memory(3 * held, machine);
      [[fallthrough]];
    case StepKind::kFusedAllReduceAddNorm:
      return sum(over_link(wire_bytes(step, grid, machine, load), step.over, grid, machine),
                 {3 * held / (machine.memory_gbs * kGiga) * kMicro, "memory"});
    // Each member adds and norms its slice only. Scattering and gathering wait for each other once.
    case StepKind::kFusedScatterAddNormGather:
      return sum(over_link(wire_bytes(step, grid, machine, load), step.over, grid, machine),
                 {(3.0 / grid.size(step.over) + 1) * held / (machine.memory_gbs * kGiga) * kMicro, "memory"});
    default:
      break;
  }
  return over_link(wire_bytes(step, grid, machine, load), step.over, grid, machine);
}

Estimate estimate(const Signature& signature, const RankGrid& grid, const Machine& machine,
                  const Load& load) {
  const double rows = rows_held(signature.needs, grid, load.rows_per_replica);
  // Of the experts that a rank owns, those are read that some row chose which can reach it.
  const double chosen =
      signature.owned_experts * (1 - std::pow(1 - signature.choice, rows * grid.size(signature.exchange)));
  const double bytes = signature.weight_bytes + chosen * signature.expert_bytes +
                       rows * load.context * signature.cache_bytes_per_token;
  const double memory = bytes / (machine.memory_gbs * kGiga) * kMicro;
  const double arithmetic = rows * signature.flops_per_row / (machine.peak_tflops * kTera) * kMicro;
  return {machine.launch_us + std::max(memory, arithmetic), memory > arithmetic ? "memory" : "arithmetic"};
}

double total_us(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load) {
  double us = 0;
  for_each_step(plan, load,
                [&](const Step& step, const Load& now) { us += estimate(step, grid, machine, now).us; });
  return us;
}

double total_wire_bytes(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load) {
  double bytes = 0;
  for_each_step(plan, load,
                [&](const Step& step, const Load& now) { bytes += wire_bytes(step, grid, machine, now); });
  return bytes;
}

double total_us(const Plan& plan, std::span<const Stage> chain, const RankGrid& grid, const Machine& machine,
                const Load& load) {
  LOCKSTEP_CHECK_EQ(plan.edges.size() + 1, chain.size());
  double us = total_us(plan, grid, machine, load);
  for (size_t at = 0; at < chain.size(); ++at) {
    const Edge* in = at > 0 ? &plan.edges[at - 1] : nullptr;
    const Edge* out = at < plan.edges.size() ? &plan.edges[at] : nullptr;
    const Signature* runs = signature_of(chain[at], in ? &in->needed : nullptr, out ? &out->given : nullptr);
    LOCKSTEP_CHECK(runs != nullptr, "stage {} of {} has no such signature", at, chain.size());
    us += estimate(*runs, grid, machine, sees_wanted_rows(chain[at].kind) ? after_select(load) : load).us;
  }
  return us;
}

std::string explain(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load) {
  std::string text;
  Load now = load;
  for (const Edge& edge : plan.edges) {
    text += fmt::format("{} -> {}\n", to_text(edge.from), to_text(edge.to));
    for (const Step& step : edge.steps) {
      if (step.kind == StepKind::kSelect) now = after_select(load);
      const Load here = load_on(edge.from.kind, now);
      const Estimate cost = estimate(step, grid, machine, here);
      text +=
          fmt::format("  {:<26} over {:<8} {:>9.2f} us  {:>10.0f} B out  bound by {}\n", name_of(step.kind),
                      grid.name_of(step.over), cost.us, wire_bytes(step, grid, machine, here), cost.bound_by);
    }
  }
  text += fmt::format("steps: {:.1f} us, {:.0f} bytes out of a rank, for {} rows a replica on {}\n",
                      total_us(plan, grid, machine, load), total_wire_bytes(plan, grid, machine, load),
                      load.rows_per_replica, machine.name);
  return text;
}

}  // namespace lockstep::planning
