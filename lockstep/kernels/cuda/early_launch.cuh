#pragma once
// Kernels that are launched while the kernel before them still runs (programmatic dependent launch): their blocks
// take their places and read what nobody writes, weights, and wait with wait_for_kernels_before() before they read
// or write anything else. Every thread of a kernel launched with launch_early() calls it, so that a kernel that has
// ended says that all kernels before it have.
#include <cuda_runtime.h>

#include <utility>

namespace lockstep::kernels::cuda {

// All blocks of this kernel are there: those of the next may come.
__device__ inline void let_next_kernel_come() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ inline void wait_for_kernels_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// For kernels that have nothing to do before.
__device__ inline void begin_early_kernel() {
  let_next_kernel_come();
  wait_for_kernels_before();
}

template <class... Params, class... Args>
void launch_early(void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared_bytes, cudaStream_t stream,
                  Args&&... args) {
  // A multiprocessor shares out its memory anew only when it is idle: kernels that are to run side by side ask for the
  // same.
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...);
}

}  // namespace lockstep::kernels::cuda
