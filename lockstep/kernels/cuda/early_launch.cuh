#pragma once
// Kernels that are launched while the kernel before them still runs (programmatic dependent launch): their blocks
// take their places and read what nobody writes, weights, and wait with wait_for_kernels_before() before they read
// or write anything else. Every thread of a kernel launched with launch_early() calls it, so that a kernel that has
// ended says that all kernels before it have.
#include <cuda_runtime.h>

#include <type_traits>
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

// So many blocks that follow each other share their memories.
struct Clusters {
  unsigned blocks = 1;
};

template <class... Params, class... Args>
void launch_early(void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared_bytes, cudaStream_t stream,
                  const Clusters& clusters, Args&&... args) {
  // A multiprocessor shares out its memory anew only when it is idle: kernels that are to run side by side ask for the
  // same.
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {clusters.blocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = clusters.blocks > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...);
}
template <class First, class... Params, class... Args>
  requires(!std::is_same_v<std::remove_cvref_t<First>, Clusters>)
void launch_early(void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared_bytes, cudaStream_t stream,
                  First&& first, Args&&... args) {
  launch_early(kernel, grid, threads, shared_bytes, stream, Clusters{}, std::forward<First>(first),
               std::forward<Args>(args)...);
}

}  // namespace lockstep::kernels::cuda
