#include "lockstep/kernels/device.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/control_groups.h"
#include "lockstep/kernels/cuda/cuda_kernels.h"

namespace lockstep::kernels {

std::string_view name_of(Device device) { return device == Device::kCuda ? "cuda" : "cpu"; }

Result<DeviceFacts> device_facts(Device device) {
  if (device == Device::kCuda) return cuda::device_facts();
  return DeviceFacts{.memory_bytes = {static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                                      static_cast<double>(sysconf(_SC_PAGESIZE))}};
}

int device_of_rank(int rank, int num_devices) { return rank % num_devices; }

int num_devices_used(int num_ranks, int num_devices) { return std::min(num_ranks, num_devices); }

double memory_of_a_rank(const DeviceFacts& facts, int num_ranks) {
  const int count = static_cast<int>(facts.memory_bytes.size());
  double least = std::numeric_limits<double>::infinity();
  for (int device = 0; device < num_devices_used(num_ranks, count); ++device) {
    const int sharing = num_ranks / count + (device < num_ranks % count ? 1 : 0);
    least = std::min(least, facts.memory_bytes[static_cast<size_t>(device)] / sharing);
  }
  return least;
}

Status check_ranks(Device device, int num_ranks) {
  return device == Device::kCuda ? cuda::check_ranks(num_ranks) : Status(Done{});
}

CpuThreads cpu_threads_of_a_rank(std::optional<int> asked, int num_ranks) {
  const int cores = usable_cores();
  const int count = asked.value_or(std::max(1, cores / num_ranks));
  const bool fits = static_cast<int64_t>(count) * num_ranks <= cores;
  return {.count = count, .wait = fits ? CpuThreads::Wait::kSpin : CpuThreads::Wait::kSleep};
}

std::unique_ptr<Kernels> make_kernels(const DeviceChoice& choice, int rank) {
  return choice.device == Device::kCuda ? cuda::make_kernels(choice, rank) : make_cpu_kernels(choice.cpu);
}

}  // namespace lockstep::kernels
