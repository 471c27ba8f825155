#pragma once
// What the planner may assume of hardware and of a collective backend. Filled in by whoever starts the
// engine, never queried from inside planning. Every figure has a unit in its name and a source beside its
// preset.
#include <string>
#include <string_view>

namespace lockstep::planning {

struct Machine {
  std::string name;
  double collective_us = 0;  // latency of one collective, whatever its size
  double launch_us = 0;      // cost of starting one local operation
  double link_gbs = 0;       // GB/s out of one rank during a collective
  double memory_gbs = 0;     // GB/s of one rank's memory
  double peak_tflops = 0;    // of one rank's matrix products
  int bytes_per_value = 2;   // of an activation on the wire and in memory
  enum class FusedAllReduceAddNorm : unsigned char {
    kNone,
    kAdvertised
  } fused_all_reduce_add_norm = FusedAllReduceAddNorm::kNone;
};

// Ranks as threads of one CPU process.
Machine cpu_ranks_machine(int num_ranks, int num_cores);
// Two NVIDIA H200 of one host.
Machine h200_machine();

}  // namespace lockstep::planning
