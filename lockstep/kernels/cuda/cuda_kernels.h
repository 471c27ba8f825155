#pragma once
// The CUDA backend: every op on one stream a rank, in the memory of one GPU. Calls return when the work is
// queued; Memory::download() waits for it, and faults of the GPU appear there. Only kernels/device.cc and
// tests include this.
#include <memory>

#include "lockstep/kernels/device.h"

namespace lockstep::kernels::cuda {

Result<DeviceFacts> device_facts();
Status check_ranks(int num_ranks);
std::unique_ptr<Kernels> make_kernels(const DeviceChoice& choice, int rank);

}  // namespace lockstep::kernels::cuda
