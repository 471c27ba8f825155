#include "lockstep/planning/machine_file.h"

#include <algorithm>

#include "lockstep/planning/json_fields.h"

namespace lockstep::planning {
namespace {

constexpr int kVersion = 1, kMostRanks = 1024;
constexpr size_t kMostWorlds = 64;
constexpr double kMostUs = 1e8, kLeastRate = 1e-6, kMostRate = 1e9;

WorldConstants world_of(Fields& fields) {
  fields.only({"ranks", "collective_us", "link_gbs", "memory_gbs", "memory_gb", "peak_tflops"});
  return {.num_ranks = static_cast<int>(fields.integer("ranks", 1, kMostRanks)),
          .collective_us = fields.number("collective_us", 0, kMostUs),
          .link_gbs = fields.number("link_gbs", kLeastRate, kMostRate),
          .memory_gbs = fields.number("memory_gbs", kLeastRate, kMostRate),
          .memory_gb = fields.number("memory_gb", kLeastRate, kMostRate),
          .peak_tflops = fields.number("peak_tflops", kLeastRate, kMostRate)};
}

Result<std::vector<WorldConstants>> worlds_of(const Json& json) {
  const auto at = json.find("worlds");
  if (at == json.end() || !at->is_array() || at->empty() || at->size() > kMostWorlds)
    return invalid_argument("worlds", "\"worlds\" is not a list of 1 to {} objects", kMostWorlds);
  std::vector<WorldConstants> worlds;
  for (const Json& one : *at) {
    Fields fields = Fields::of(one, fmt::format("worlds[{}]", worlds.size()));
    worlds.push_back(world_of(fields));
    if (worlds.size() > 1 && worlds.back().num_ranks <= worlds[worlds.size() - 2].num_ranks)
      fields.fail(fmt::format("\"ranks\" of \"worlds[{}]\" is {}, not more than the {} before it",
                              worlds.size() - 1, worlds.back().num_ranks,
                              worlds[worlds.size() - 2].num_ranks));
    if (const Status status = fields.status(); !status) return status.error();
  }
  return worlds;
}

// Of a rank, where all ranks together have what lies on the line from `a` to `b`.
double share_between(double a, int a_ranks, double b, int b_ranks, int ranks) {
  const double along = static_cast<double>(ranks - a_ranks) / (b_ranks - a_ranks);
  return (a * a_ranks + along * (b * b_ranks - a * a_ranks)) / ranks;
}

WorldConstants between(const WorldConstants& a, const WorldConstants& b, int ranks) {
  const double along = static_cast<double>(ranks - a.num_ranks) / (b.num_ranks - a.num_ranks);
  const auto rate = [&](double WorldConstants::* of) {
    return share_between(a.*of, a.num_ranks, b.*of, b.num_ranks, ranks);
  };
  return {.num_ranks = ranks,
          .collective_us = a.collective_us + along * (b.collective_us - a.collective_us),
          .link_gbs = rate(&WorldConstants::link_gbs),
          .memory_gbs = rate(&WorldConstants::memory_gbs),
          .memory_gb = rate(&WorldConstants::memory_gb),
          .peak_tflops = rate(&WorldConstants::peak_tflops)};
}

WorldConstants beyond(const WorldConstants& largest, MeasuredMachine::Ranks kind, int ranks) {
  WorldConstants world = largest;
  world.num_ranks = ranks;
  if (kind == MeasuredMachine::Ranks::kOwnDevices) return world;
  const double more = static_cast<double>(ranks) / largest.num_ranks;
  world.collective_us *= more;
  for (const auto rate : {&WorldConstants::link_gbs, &WorldConstants::memory_gbs, &WorldConstants::memory_gb,
                          &WorldConstants::peak_tflops})
    world.*rate /= more;
  return world;
}

WorldConstants world_of_ranks(const MeasuredMachine& measured, int ranks) {
  const auto& worlds = measured.worlds;
  LOCKSTEP_CHECK(!worlds.empty(), "a machine without {} worlds", 1);
  const auto next = std::find_if(worlds.begin(), worlds.end(),
                                 [&](const WorldConstants& world) { return world.num_ranks >= ranks; });
  if (next == worlds.end()) return beyond(worlds.back(), measured.ranks, ranks);
  if (next->num_ranks == ranks || next == worlds.begin()) return *next;
  return between(*(next - 1), *next, ranks);
}

}  // namespace

std::string_view name_of(MeasuredMachine::Ranks ranks) {
  return ranks == MeasuredMachine::Ranks::kShareCores ? "share cores" : "own devices";
}

Json to_json(const MeasuredMachine& machine) {
  Json worlds = Json::array();
  for (const WorldConstants& world : machine.worlds)
    worlds.push_back({{"ranks", world.num_ranks},
                      {"collective_us", world.collective_us},
                      {"link_gbs", world.link_gbs},
                      {"memory_gbs", world.memory_gbs},
                      {"memory_gb", world.memory_gb},
                      {"peak_tflops", world.peak_tflops}});
  return {{"lockstep_machine", kVersion},
          {"name", machine.name},
          {"ranks", name_of(machine.ranks)},
          {"bytes_per_value", machine.bytes_per_value},
          {"launch_us", machine.launch_us},
          {"ranks_per_host", machine.ranks_per_host},
          {"host_collective_us", machine.host_collective_us},
          {"host_link_gbs", machine.host_link_gbs},
          {"worlds", std::move(worlds)},
          {"sources", machine.sources}};
}

Result<MeasuredMachine> measured_machine_from_json(const Json& json) {
  Fields fields = Fields::of(json, "machine");
  fields.only({"lockstep_machine", "name", "ranks", "bytes_per_value", "launch_us", "ranks_per_host",
               "host_collective_us", "host_link_gbs", "worlds", "sources"});
  fields.integer("lockstep_machine", kVersion, kVersion);
  MeasuredMachine machine{.name = fields.text("name"),
                          .ranks = fields.one_of("ranks", {MeasuredMachine::Ranks::kShareCores,
                                                           MeasuredMachine::Ranks::kOwnDevices}),
                          .bytes_per_value = static_cast<int>(fields.integer("bytes_per_value", 1, 8)),
                          .launch_us = fields.number("launch_us", 0, kMostUs),
                          .ranks_per_host = static_cast<int>(fields.integer("ranks_per_host", 0, kMostRanks)),
                          .host_collective_us = fields.number("host_collective_us", 0, kMostUs),
                          .host_link_gbs = fields.number("host_link_gbs", 0, kMostRate)};
  if (machine.name.empty()) fields.fail("\"name\" of \"machine\" is empty");
  if (machine.ranks_per_host > 0 && machine.host_link_gbs == 0)
    fields.fail(fmt::format("\"ranks_per_host\" of \"machine\" is {}, and \"host_link_gbs\" is 0",
                            machine.ranks_per_host));
  const Json* sources = json.is_object() && json.contains("sources") ? &json.at("sources") : nullptr;
  if (sources == nullptr || !sources->is_object())
    fields.fail("there is no object \"sources\" in \"machine\"");
  if (const Status status = fields.status(); !status) return status.error();
  for (const auto& [key, value] : sources->items()) {
    Fields of = Fields::of(*sources, "sources");
    machine.sources[key] = of.text(key.c_str());
    if (const Status status = of.status(); !status) return status.error();
  }
  auto worlds = worlds_of(json);
  if (!worlds) return worlds.error();
  machine.worlds = *std::move(worlds);
  return machine;
}

Machine machine_of_ranks(const MeasuredMachine& measured, int num_ranks) {
  const WorldConstants world = world_of_ranks(measured, num_ranks);
  return {.name = measured.name,
          .collective_us = world.collective_us,
          .launch_us = measured.launch_us,
          .link_gbs = world.link_gbs,
          .ranks_per_host = measured.ranks_per_host,
          .host_collective_us = measured.host_collective_us,
          .host_link_gbs = measured.host_link_gbs,
          .memory_gbs = world.memory_gbs,
          .memory_gb = world.memory_gb,
          .peak_tflops = world.peak_tflops,
          .bytes_per_value = measured.bytes_per_value,
          .fused_all_reduce_add_norm = Machine::FusedAllReduceAddNorm::kAdvertised,
          .fused_scatter_norm_gather = Machine::FusedScatterNormGather::kAdvertised,
          .fused_combine_add = Machine::FusedCombineAdd::kAdvertised};
}

}  // namespace lockstep::planning
