// Stands in for kernels/cuda where the build has none (LOCKSTEP_CUDA is off).
#include "lockstep/kernels/cuda/cuda_kernels.h"

namespace lockstep::kernels::cuda {

Result<DeviceFacts> device_facts() {
  return invalid_argument("--device",
                          "--device cuda: this program was built without CUDA; build it with "
                          "the preset cuda, or use --device cpu");
}

Status check_ranks(int) { return device_facts().error(); }

std::unique_ptr<Kernels> make_kernels(const DeviceChoice&, int rank) {
  throw Fatal(fmt::format("rank {} has no CUDA: {}", rank, device_facts().error().message));
}

}  // namespace lockstep::kernels::cuda
