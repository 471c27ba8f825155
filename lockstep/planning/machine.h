#pragma once
// What the planner may assume of hardware and of a collective backend. Filled in by whoever starts the
// engine, never queried from inside planning. Every figure has a unit in its name and a source beside its
// preset.
#include <string>
#include <string_view>

#include "lockstep/base/check.h"

namespace lockstep::planning {

struct Machine {
  std::string name;
  double collective_us = 0;       // latency of one collective, whatever its size
  double launch_us = 0;           // cost of starting one local operation
  double link_gbs = 0;            // GB/s out of one rank to others of its host during a collective
  int ranks_per_host = 0;         // 0: all ranks are of one host
  double host_collective_us = 0;  // added latency of a collective that leaves a host
  double host_link_gbs = 0;       // GB/s out of one rank to other hosts
  double memory_gbs = 0;          // GB/s of one rank's memory
  double memory_gb = 0;           // GB that one rank can use
  double peak_tflops = 0;         // of one rank's matrix products
  int bytes_per_value = 2;        // of an activation on the wire and in memory
  enum class FusedAllReduceAddNorm : unsigned char {
    kNone,
    kAdvertised
  } fused_all_reduce_add_norm = FusedAllReduceAddNorm::kNone;
  enum class FusedScatterNormGather : unsigned char {
    kNone,
    kAdvertised
  } fused_scatter_norm_gather = FusedScatterNormGather::kNone;
  enum class FusedCombineAdd : unsigned char {
    kNone,
    kAdvertised
  } fused_combine_add = FusedCombineAdd::kNone;
};

// "8xH200" or "2xcpu": so many ranks, and what they run on.
struct MachineOfRanks {
  Machine machine;
  int num_ranks = 1;
};
Result<MachineOfRanks> machine_named(std::string_view text);

// Ranks as threads of one CPU process.
Machine cpu_ranks_machine(int num_ranks, int num_cores);
// NVIDIA H200, eight of a host.
Machine h200_machine();

}  // namespace lockstep::planning
