#pragma once
// Memory of one kind and the copies into and out of it: the host's own, or that of a device, whose copies are
// ordered with the kernels of the backend that the memory belongs to (Kernels::memory()). A view does not
// know where it points; whoever reads numbers on the host asks access() or downloads.
#include <cstddef>

#include "lockstep/tensors/tensor.h"

namespace lockstep {

class Memory {
 public:
  virtual ~Memory() = default;
  enum class Access : uint8_t { kByHost, kByDevice };
  virtual Access access() const = 0;
  // 64-byte aligned; null when there is not enough.
  virtual void* allocate(size_t bytes) const = 0;
  // All zero, 16-byte aligned; on the host, pages that nobody touches cost nothing.
  virtual void* allocate_zeroed(size_t bytes) const = 0;
  virtual void release(void* memory) const = 0;
  // From and to memory of the host. `from` may change as soon as upload() returns; what `to` holds is there
  // when download() returns.
  virtual void upload(void* to, const void* from, size_t bytes) const = 0;
  virtual void download(void* to, const void* from, size_t bytes) const = 0;
  virtual void zero(void* at, size_t bytes) const = 0;
  // Memory of the host from and to which copies are fastest; lives as long as this.
  virtual const Memory& host_side() const = 0;
};

// One for all; may be used by many threads at once.
const Memory& host_memory();

// Memory that one owner holds. Grows and never shrinks; growing loses what was there. Fatal when there is no
// more, with the sizes.
class Buffer {
 public:
  explicit Buffer(const Memory& memory = host_memory()) : memory_(&memory) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  // A contiguous view of the front of the buffer.
  TensorView view(DType dtype, std::initializer_list<int64_t> shape);
  TensorView view(std::initializer_list<int64_t> shape) { return view(DType::kF32, shape); }
  size_t bytes() const { return bytes_; }

 private:
  const Memory* memory_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lockstep
