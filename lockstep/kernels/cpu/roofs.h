#pragma once
// What this machine's cores can do at most, measured: bytes read from memory, and float32 multiply-adds with
// the widest vectors. What times of the CPU's ops and steps are compared with.
#include "lockstep/kernels/cpu_threads.h"

namespace lockstep::kernels {

struct CpuRoofs {
  double read_bytes_per_second = 0;
  double flops_per_second = 0;
};
// Of so many threads together; the best of some tries, half a second in all.
CpuRoofs measure_cpu_roofs(const CpuThreads& threads);

}  // namespace lockstep::kernels
