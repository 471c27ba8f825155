#include "lockstep/planning/machine.h"

#include <algorithm>

namespace lockstep::planning {

Machine cpu_ranks_machine(int num_ranks, int num_cores) {
  // Measured on two cores of an Emerald Rapids guest: a barrier pair of sleeping threads 22 µs, 13 GB/s from
  // DRAM and 115 GFLOP/s of bf16-by-float32 products a core. Ranks that share a core share its memory and
  // arithmetic.
  const double share = std::min(1.0, static_cast<double>(num_cores) / std::max(1, num_ranks));
  return {.name = "cpu",
          .collective_us = 44.0 / std::max(share, 0.01),
          .launch_us = 0.5,
          .link_gbs = 13.0 * share,
          .memory_gbs = 13.0 * share,
          .peak_tflops = 0.115 * share,
          .bytes_per_value = 4,
          .fused_all_reduce_add_norm = Machine::FusedAllReduceAddNorm::kAdvertised};
}

Machine h200_machine() {
  // Medians inside CUDA graphs, CUDA 13.0, NCCL 2.28.9, NVLink with 18 links, 2026-11-30: all-reduce of one
  // row of 7168 in 9.8 µs, peer copy 394 GB/s, read 4.02 TB/s, bf16 product of 8192³ at 765 TFLOP/s. The
  // launch figure is the difference of all-reduce with and without a following add + RMSNorm at one row (10.5
  // - 9.8 µs).
  return {.name = "h200",
          .collective_us = 9.8,
          .launch_us = 0.7,
          .link_gbs = 394,
          .memory_gbs = 4020,
          .peak_tflops = 765,
          .bytes_per_value = 2,
          .fused_all_reduce_add_norm = Machine::FusedAllReduceAddNorm::kAdvertised};
}

}  // namespace lockstep::planning
