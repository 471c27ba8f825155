#pragma once
// Where ranks compute. The front door to a backend: everything above makes its kernels here and sees only
// Kernels. A build without CUDA knows the word and refuses it.
#include <memory>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {

enum class Device : uint8_t { kCpu, kCuda };
// What a device's products make of float32 inputs where the weight is bf16. The CPU always takes them whole.
enum class ProductInputs : uint8_t {
  kRounded,  // to bf16: what tensor cores multiply
  kWhole,    // in two bf16 parts, experts in float32: exact, and slower
};
std::string_view name_of(Device device);

// What the ranks of one process have together.
struct DeviceFacts {
  int num_devices = 1;
  double memory_bytes = 0;  // of all of them
};
// The error says why the device cannot be used here.
Result<DeviceFacts> device_facts(Device device);

enum class Steps : uint8_t {
  kRecorded,  // what a step launches is recorded and launched at once when such a step comes again
  kLaunched,  // one kernel after the other
};
struct DeviceChoice {
  Device device = Device::kCpu;
  ProductInputs product_inputs = ProductInputs::kRounded;
  Steps steps = Steps::kRecorded;
};
// The kernels of one rank. Ranks take the devices in turn; several may share one. Fatal where device_facts()
// gives an error.
std::unique_ptr<Kernels> make_kernels(const DeviceChoice& choice, int rank);

}  // namespace lockstep::kernels
