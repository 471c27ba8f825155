// Which GPUs there are and what ranks can do on them, asked before anything is placed there.
#include "lockstep/kernels/cuda/cuda_kernels.h"
#include "lockstep/kernels/cuda/gpu.h"
#include "lockstep/kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

Result<DeviceFacts> device_facts() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    return invalid_argument("--device", "--device cuda: no GPU can be used here ({}); use --device cpu",
                            error == cudaSuccess ? "0 found" : cudaGetErrorString(error));
  DeviceFacts facts;
  for (int index = 0; index < count; ++index) {
    size_t free_bytes = 0, all_bytes = 0;
    expect_success(cudaSetDevice(index), "cudaSetDevice");
    expect_success(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
    facts.memory_bytes.push_back(static_cast<double>(free_bytes));
  }
  return facts;
}

namespace {

// Whether kernels were compiled for this GPU, asked of one of them.
Status check_compiled_for(int index) {
  cudaDeviceProp properties = {};
  expect_success(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  expect_success(cudaSetDevice(index), "cudaSetDevice");
  if (has_code_here()) return Done{};
  cudaGetLastError();
  return invalid_argument(
      "--device",
      "--device cuda: this program has no kernels for GPU {} ({}, architecture {}{}); build "
      "it with -DLOCKSTEP_CUDA_ARCHITECTURES naming that, or use --device cpu",
      index, properties.name, properties.major, properties.minor);
}

Status check_peers(int used) {
  for (int one = 0; one < used; ++one)
    for (int other = 0; other < used; ++other) {
      int can = 1;
      if (one != other) expect_success(cudaDeviceCanAccessPeer(&can, one, other), "cudaDeviceCanAccessPeer");
      if (can == 0)
        return invalid_argument(
            "--tp-size",
            "GPU {} cannot read the memory of GPU {}, as ranks do: use --tp-size 1, or let "
            "CUDA_VISIBLE_DEVICES name GPUs that can",
            one, other);
    }
  return Done{};
}

}  // namespace

Status check_ranks(int num_ranks) {
  const auto facts = device_facts();
  if (!facts) return facts.error();
  if (num_ranks > kMaxSources)
    return invalid_argument("--tp-size", "--tp-size {}: at most {} ranks compute on GPUs together", num_ranks,
                            kMaxSources);
  const int used = num_devices_used(num_ranks, static_cast<int>(facts->memory_bytes.size()));
  for (int index = 0; index < used; ++index)
    if (const Status status = check_compiled_for(index); !status) return status;
  return check_peers(used);
}

}  // namespace lockstep::kernels::cuda
