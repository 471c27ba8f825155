#pragma once
// Where ranks compute. The front door to a backend: everything above makes its kernels here and sees only
// Kernels. A build without CUDA knows the word and refuses it.
#include <memory>
#include <vector>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {

enum class Device : uint8_t { kCpu, kCuda };
// What a device's products make of float32 inputs where the weight is bf16. The CPU always takes them whole.
enum class ProductInputs : uint8_t {
  kRounded,  // to bf16: what tensor cores multiply
  kWhole,    // in two bf16 parts, experts in float32: exact, and slower
};
std::string_view name_of(Device device);

struct DeviceFacts {
  // Of each device: the host's whole memory, of a GPU what is free now.
  std::vector<double> memory_bytes;
};
// The error says why the device cannot be used here.
Result<DeviceFacts> device_facts(Device device);

// Ranks take the devices in turn: which one a rank computes on, how many devices `num_ranks` ranks use, and
// what the rank with the least has of its device's memory.
int device_of_rank(int rank, int num_devices);
int num_devices_used(int num_ranks, int num_devices);
double memory_of_a_rank(const DeviceFacts& facts, int num_ranks);

// Whether so many ranks can compute there together. The error names the flag.
Status check_ranks(Device device, int num_ranks);

enum class Steps : uint8_t {
  kRecorded,  // what a step launches is recorded and launched at once when such a step comes again
  kLaunched,  // one kernel after the other
};
struct DeviceChoice {
  Device device = Device::kCpu;
  ProductInputs product_inputs = ProductInputs::kRounded;
  Steps steps = Steps::kRecorded;
  CpuThreads cpu;  // of each rank, where ranks compute on the host
};
// What the CPU's kernels of this process are compiled for, the widest that the machine has unless one is
// asked for: "avx512", "avx2", "sse4", "neon" or "portable". To be called before anything has asked for
// kernels' name or numbers: the choice is the process's, and another one is refused once it is made. The
// error lists what the machine can run.
Status use_instruction_set(std::string_view name);

// The kernels of one rank. Ranks take the devices in turn; several may share one. Fatal where device_facts()
// gives an error.
std::unique_ptr<Kernels> make_kernels(const DeviceChoice& choice, int rank);

}  // namespace lockstep::kernels
