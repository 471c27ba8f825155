#pragma once
// One rank's part of a GPU: the device, a stream, and memory whose copies go through that stream.
#include <cuda_runtime_api.h>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels::cuda {

// Fatal with the name of the call and CUDA's words for the error.
void expect_success(cudaError_t error, std::string_view call);

// Pages of the host that stay where they are: what a GPU copies at full speed.
class PinnedMemory final : public Memory {
 public:
  Access access() const override { return Access::kByHost; }
  void* allocate(size_t bytes) const override;
  void* allocate_zeroed(size_t bytes) const override;
  void release(void* memory) const override;
  void upload(void* to, const void* from, size_t bytes) const override;
  void download(void* to, const void* from, size_t bytes) const override;
  void zero(void* at, size_t bytes) const override;
  const Memory& host_side() const override { return *this; }
};

class Gpu final : public Memory {
 public:
  explicit Gpu(int index);
  ~Gpu() override;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int index() const { return index_; }
  cudaStream_t stream() const { return stream_; }
  uint64_t num_host_writes() const { return num_host_writes_; }  // upload() and zero(), so far
  void use() const;                                              // this thread's calls go to this GPU
  void wait_idle() const;

  Access access() const override { return Access::kByDevice; }
  void* allocate(size_t bytes) const override;
  void* allocate_zeroed(size_t bytes) const override;
  void release(void* memory) const override;
  void upload(void* to, const void* from, size_t bytes) const override;
  void download(void* to, const void* from, size_t bytes) const override;
  void zero(void* at, size_t bytes) const override;
  const Memory& host_side() const override { return pinned_; }

 private:
  const PinnedMemory pinned_;
  const int index_;
  cudaStream_t stream_ = nullptr;
  mutable uint64_t num_host_writes_ = 0;
};

// Work that a stream has been given up to some point.
class GpuFence final : public Fence {
 public:
  explicit GpuFence(const Gpu& gpu);
  ~GpuFence() override;
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace lockstep::kernels::cuda
