#pragma once
// Where ranks compute. The front door to a backend: everything above makes its kernels here and sees only
// Kernels. A build without CUDA knows the word and refuses it.
#include <memory>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {

enum class Device : uint8_t { kCpu, kCuda };
std::string_view name_of(Device device);

// What the ranks of one process have together.
struct DeviceFacts {
  int num_devices = 1;
  double memory_bytes = 0;  // of all of them
};
// The error says why the device cannot be used here.
Result<DeviceFacts> device_facts(Device device);

// The kernels of one rank. Ranks take the devices in turn; several may share one. Fatal where device_facts()
// gives an error.
std::unique_ptr<Kernels> make_kernels(Device device, int rank);

}  // namespace lockstep::kernels
