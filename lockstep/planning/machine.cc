#include "lockstep/planning/machine.h"

#include <algorithm>
#include <charconv>

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
          .memory_gb = 4.0,
          .peak_tflops = 0.115 * share,
          .bytes_per_value = 4,
          .fused_all_reduce_add_norm = Machine::FusedAllReduceAddNorm::kAdvertised,
          .fused_scatter_norm_gather = Machine::FusedScatterNormGather::kAdvertised,
          .fused_combine_add = Machine::FusedCombineAdd::kAdvertised};
}

Machine h200_machine() {
  // Medians inside CUDA graphs, CUDA 13.0, NCCL 2.28.9, NVLink with 18 links, 2026-11-30: all-reduce of one
  // row of 7168 in 9.8 µs, peer copy 394 GB/s, read 4.02 TB/s, bf16 product of 8192³ at 765 TFLOP/s. The
  // launch figure is the difference of all-reduce with and without a following add + RMSNorm at one row (10.5
  // - 9.8 µs). Memory: of the 139 GiB that the driver reports, 144 GB are left to a process. Eight of a host.
  // Between hosts: a 400 Gb/s adapter each; DeepEP's README reports 43 to 58 GB/s out of a rank through one,
  // of which the lowest is taken. The added latency is an assumption (two switch hops and a proxy thread).
  return {.name = "h200",
          .collective_us = 9.8,
          .launch_us = 0.7,
          .link_gbs = 394,
          .ranks_per_host = 8,
          .host_collective_us = 15,
          .host_link_gbs = 43,
          .memory_gbs = 4020,
          .memory_gb = 144,
          .peak_tflops = 765,
          .bytes_per_value = 2,
          .fused_all_reduce_add_norm = Machine::FusedAllReduceAddNorm::kAdvertised,
          .fused_scatter_norm_gather = Machine::FusedScatterNormGather::kAdvertised,
          .fused_combine_add = Machine::FusedCombineAdd::kAdvertised};
}

Result<MachineOfRanks> machine_named(std::string_view text) {
  constexpr int kMostRanks = 1024;
  const auto cross = text.find('x');
  int ranks = 0;
  const char* last = text.data() + std::min(cross, text.size());
  const auto [end, failure] = std::from_chars(text.data(), last, ranks);
  const std::string_view kind = cross == std::string_view::npos ? "" : text.substr(cross + 1);
  if (failure != std::errc() || end != last || ranks < 1 || ranks > kMostRanks)
    return invalid_argument("--machine", "\"{}\" is not NxMACHINE with N from 1 to {}, like 8xH200", text,
                            kMostRanks);
  if (kind == "H200" || kind == "h200") return MachineOfRanks{h200_machine(), ranks};
  if (kind == "cpu") return MachineOfRanks{cpu_ranks_machine(ranks, ranks), ranks};
  return invalid_argument("--machine", "there is no machine \"{}\"; the machines are: H200, cpu", kind);
}

}  // namespace lockstep::planning
