#include "lockstep/tensors/memory.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep {
namespace {

constexpr size_t kAlignment = 64;

size_t whole_lines(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class HostMemory final : public Memory {
 public:
  Access access() const override { return Access::kByHost; }
  // calloc() takes large blocks from the system as they are, which is why they cost nothing until touched.
  void* allocate_zeroed(size_t bytes) const override { return std::calloc(bytes + kAlignment, 1); }
  void* allocate(size_t bytes) const override {
    return std::aligned_alloc(kAlignment, whole_lines(bytes) + kAlignment);
  }
  void release(void* memory) const override { std::free(memory); }
  void upload(void* to, const void* from, size_t bytes) const override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, size_t bytes) const override { upload(to, from, bytes); }
  const Memory& host_side() const override { return *this; }
  void zero(void* at, size_t bytes) const override {
    if (bytes > 0) std::memset(at, 0, bytes);
  }
};

}  // namespace

const Memory& host_memory() {
  static const HostMemory memory;
  return memory;
}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) memory_->release(data_);
}

TensorView Buffer::view(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView found = view_of(nullptr, dtype, shape);
  const size_t bytes = static_cast<size_t>(found.num_elements()) * size_of(dtype);
  if (bytes > bytes_ || data_ == nullptr) {
    if (data_ != nullptr) memory_->release(std::exchange(data_, nullptr));
    bytes_ = 0;
    data_ = memory_->allocate(bytes);
    if (data_ == nullptr)
      throw Fatal(
          fmt::format("no memory for {} bytes more: raise --tp-size, or lower --mem-fraction-static, "
                      "--max-running-requests or --chunked-prefill-size",
                      bytes));
    bytes_ = bytes;
  }
  found.data = data_;
  return found;
}

}  // namespace lockstep
