#include "lockstep/runtime/machine_facts.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/control_groups.h"
#include "lockstep/kernels/device.h"

namespace lockstep::runtime {

uint64_t MachineFacts::usable_memory_bytes() const {
  return std::min(memory_bytes, memory_limit_bytes.value_or(memory_bytes));
}

MachineFacts machine_facts() {
  MachineFacts facts = {.num_cores = usable_cores(),
                        .instruction_set = std::string(kernels::make_cpu_kernels()->name()),
                        .memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                        static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
                        .memory_limit_bytes = cgroup_memory_limit()};
  if (const auto gpus = kernels::device_facts(kernels::Device::kCuda); gpus.ok()) {
    facts.num_gpus = static_cast<int>(gpus->memory_bytes.size());
    facts.gpu_memory_bytes = std::accumulate(gpus->memory_bytes.begin(), gpus->memory_bytes.end(), 0.0);
  }
  return facts;
}

}  // namespace lockstep::runtime
