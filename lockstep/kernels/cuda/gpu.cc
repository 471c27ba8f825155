#include "lockstep/kernels/cuda/gpu.h"

#include <algorithm>

#include "lockstep/base/log.h"

namespace lockstep::kernels::cuda {

void expect_success(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return;
  throw Fatal(fmt::format("{} failed: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error)));
}

void* PinnedMemory::allocate(size_t bytes) const {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, std::max<size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  expect_success(error, "cudaMallocHost");
  return memory;
}

void* PinnedMemory::allocate_zeroed(size_t bytes) const {
  void* memory = allocate(bytes);
  if (memory != nullptr) zero(memory, bytes);
  return memory;
}

void PinnedMemory::release(void* memory) const { cudaFreeHost(memory); }
void PinnedMemory::upload(void* to, const void* from, size_t bytes) const {
  host_memory().upload(to, from, bytes);
}
void PinnedMemory::download(void* to, const void* from, size_t bytes) const { upload(to, from, bytes); }
void PinnedMemory::zero(void* at, size_t bytes) const { host_memory().zero(at, bytes); }

Gpu::Gpu(int index) : index_(index) {
  use();
  expect_success(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  int count = 0;
  expect_success(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  // Ranks read each other's rows where they lie.
  for (int peer = 0; peer < count; ++peer) {
    int can = 0;
    if (peer == index_ || cudaDeviceCanAccessPeer(&can, index_, peer) != cudaSuccess || can == 0) continue;
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // another rank of this GPU has done it
    } else {
      expect_success(enabled, "cudaDeviceEnablePeerAccess");
    }
  }
}

Gpu::~Gpu() {
  if (cudaSetDevice(index_) != cudaSuccess) return;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

void Gpu::use() const { expect_success(cudaSetDevice(index_), "cudaSetDevice"); }

void Gpu::wait_idle() const {
  use();
  expect_success(cudaStreamSynchronize(stream_), "waiting for the GPU");
}

void* Gpu::allocate(size_t bytes) const {
  use();
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, std::max<size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free_bytes = 0, all_bytes = 0;
    cudaMemGetInfo(&free_bytes, &all_bytes);
    log_error("GPU {} has no {:.1f} MB: {:.1f} of {:.1f} MB are free", index_,
              static_cast<double>(bytes) / 1e6, static_cast<double>(free_bytes) / 1e6,
              static_cast<double>(all_bytes) / 1e6);
    return nullptr;
  }
  expect_success(error, "cudaMalloc");
  return memory;
}

void* Gpu::allocate_zeroed(size_t bytes) const {
  void* memory = allocate(bytes);
  if (memory != nullptr) zero(memory, bytes);
  return memory;
}

void Gpu::release(void* memory) const {
  cudaError_t error = cudaSetDevice(index_);
  if (error == cudaSuccess) error = cudaFree(memory);  // waits for the GPU
  if (error == cudaSuccess) return;
  cudaGetLastError();  // not the next call's
  log_error("GPU {}: freeing memory failed: {}", index_, cudaGetErrorString(error));
}

void Gpu::upload(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return;
  ++num_host_writes_;
  use();
  // From pageable memory: CUDA takes a copy before it returns.
  expect_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "upload");
}

void Gpu::download(void* to, const void* from, size_t bytes) const {
  use();
  if (bytes > 0)
    expect_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
  wait_idle();
}

void Gpu::zero(void* at, size_t bytes) const {
  if (bytes == 0) return;
  ++num_host_writes_;
  use();
  expect_success(cudaMemsetAsync(at, 0, bytes, stream_), "cudaMemset");
}

GpuFence::GpuFence(const Gpu& gpu) {
  gpu.use();
  expect_success(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

GpuFence::~GpuFence() { cudaEventDestroy(event_); }

}  // namespace lockstep::kernels::cuda
