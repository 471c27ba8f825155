#pragma once
// What the control groups of Linux let this process have of the machine: memory and cores. A container's
// limits are found here, not in the machine's own numbers. For any room.
#include <cstdint>
#include <filesystem>
#include <optional>

namespace lockstep {

// Where Linux says which control groups a process is in, and what they allow.
struct CgroupFiles {
  std::filesystem::path self = "/proc/self/cgroup", root = "/sys/fs/cgroup";
};

// The least of the limits of the process's groups and of the groups around them, in version 2 (memory.max,
// cpu.max) and version 1 (memory.limit_in_bytes, cpu.cfs_quota_us); none where nothing limits.
std::optional<uint64_t> cgroup_memory_limit(const CgroupFiles& files = {});
std::optional<double> cgroup_cpu_limit(const CgroupFiles& files = {});  // cores' worth of time

// Threads of this process that can compute all the time: the cores that it may run on, or as many whole ones
// as a quota of their time comes to; at least one.
int usable_cores(const CgroupFiles& files = {});

}  // namespace lockstep
