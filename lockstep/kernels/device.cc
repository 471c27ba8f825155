#include "lockstep/kernels/device.h"

#include <unistd.h>

#include "lockstep/kernels/cuda/cuda_kernels.h"

namespace lockstep::kernels {

std::string_view name_of(Device device) { return device == Device::kCuda ? "cuda" : "cpu"; }

Result<DeviceFacts> device_facts(Device device) {
  if (device == Device::kCuda) return cuda::device_facts();
  return DeviceFacts{.memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                                     static_cast<double>(sysconf(_SC_PAGESIZE))};
}

std::unique_ptr<Kernels> make_kernels(const DeviceChoice& choice, int rank) {
  return choice.device == Device::kCuda ? cuda::make_kernels(choice, rank) : make_cpu_kernels();
}

}  // namespace lockstep::kernels
