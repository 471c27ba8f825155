#pragma once
// The threads that compute a rank's ops on the host, its own counted. No bit of a result depends on how many
// there are.
#include <cstdint>
#include <optional>

namespace lockstep::kernels {

struct CpuThreads {
  int count = 1;
  // kSpin: a thread looks for work for some time before it sleeps; where every one has a core.
  enum class Wait : uint8_t { kSpin, kSleep } wait = Wait::kSpin;
};
inline constexpr int kMostCpuThreads = 1024;

// For each of `num_ranks` ranks of a process: so many where they are asked for, else an equal share of the
// cores that the process may run on, at least one.
CpuThreads cpu_threads_of_a_rank(std::optional<int> asked, int num_ranks);

}  // namespace lockstep::kernels
