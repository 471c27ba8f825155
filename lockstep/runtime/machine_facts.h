#pragma once
// What this machine offers to an engine: cores and memory within a container's limits, vectors. For
// described_engine.cc and the cli.
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::runtime {

struct MachineFacts {
  int num_cores = 1;                           // that this process may compute on
  std::string instruction_set;                 // of the vectorised kernels: "avx512", …
  uint64_t memory_bytes = 0;                   // of the machine
  std::optional<uint64_t> memory_limit_bytes;  // of the control groups that this process is in
  int num_gpus = 0;                            // that this build can use
  double gpu_memory_bytes = 0;                 // free on all of them

  uint64_t usable_memory_bytes() const;
};

MachineFacts machine_facts();

}  // namespace lockstep::runtime
