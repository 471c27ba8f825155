#pragma once
// What a machine was measured to do, as a file that `lockstep doctor --measure` writes and --machine FILE
// reads: the cost model's constants for some numbers of ranks, every one of a rank, with units in their
// names, and what each was measured by. Reading trusts nothing.
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/planning/machine.h"

namespace lockstep::planning {

// While `num_ranks` ranks work at once.
struct WorldConstants {
  int num_ranks = 1;
  double collective_us = 0;  // of an all-reduce of one short row
  double link_gbs = 1;       // GB/s into one rank from the others
  double memory_gbs = 1;     // GB/s that one rank reads
  double memory_gb = 1;      // that one rank can use
  double peak_tflops = 1;    // of one rank's products
  bool operator==(const WorldConstants&) const = default;
};

struct MeasuredMachine {
  std::string name;
  // Whether more ranks than were measured share what the largest world had, as threads share cores.
  enum class Ranks : uint8_t { kShareCores, kOwnDevices } ranks = Ranks::kShareCores;
  int bytes_per_value = 4;
  double launch_us = 0;
  int ranks_per_host = 0;
  double host_collective_us = 0, host_link_gbs = 0;  // between hosts; 0 GB/s: not measured
  std::vector<WorldConstants> worlds;                // ascending by ranks
  std::map<std::string, std::string> sources;        // of each constant, by its name
  bool operator==(const MeasuredMachine&) const = default;
};

std::string_view name_of(MeasuredMachine::Ranks ranks);
Json to_json(const MeasuredMachine& machine);
// Errors name the field and its value.
Result<MeasuredMachine> measured_machine_from_json(const Json& json);

// The constants for so many ranks. Between two worlds that were measured: on the straight line between them,
// rates by what all ranks have together. Beyond the largest: ranks that share cores wait and share in
// proportion; ranks with a device each have what they had.
Machine machine_of_ranks(const MeasuredMachine& measured, int num_ranks);

}  // namespace lockstep::planning
