#pragma once
// What this machine offers to an engine: cores, vectors, memory with the limit of a container. For
// described_engine.cc and the cli.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::runtime {

struct MachineFacts {
  int num_cores = 1;                           // that this process may use
  std::string instruction_set;                 // of the vectorised kernels: "avx512", …
  uint64_t memory_bytes = 0;                   // of the machine
  std::optional<uint64_t> memory_limit_bytes;  // of the control groups that this process is in
  int num_gpus = 0;                            // that this build can use
  double gpu_memory_bytes = 0;                 // free on all of them

  uint64_t usable_memory_bytes() const;
};

MachineFacts machine_facts();

// Where Linux says which control groups a process is in, and what they allow.
struct CgroupFiles {
  std::filesystem::path self = "/proc/self/cgroup", root = "/sys/fs/cgroup";
};
// The least of the limits of the process's memory groups and of the groups around them, in version 2
// (memory.max) and version 1 (memory.limit_in_bytes); none where nothing limits.
std::optional<uint64_t> cgroup_memory_limit(const CgroupFiles& files = {});

}  // namespace lockstep::runtime
