#pragma once
// Host arrays that kernels read (positions, rows, page tables, pointers), brought to the GPU once: content
// that is still there is found by itself and not copied again, so the layers of a step share one copy without
// anybody saying so.
#include <algorithm>
#include <bit>
#include <exception>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/kernels/cuda/gpu.h"

namespace lockstep::kernels::cuda {

// The arithmetic of the ring, without a GPU: where arrays go, and when everything is forgotten.
class UploadSlots {
 public:
  explicit UploadSlots(size_t capacity) : capacity_(capacity) {}

  static constexpr size_t kAlignment = 256;
  // To a power of two, so that an array that grows a little leaves the ones behind it where they are.
  static size_t padded(size_t bytes) { return std::bit_ceil(std::max(bytes, kAlignment)); }
  size_t used() const { return used_; }
  bool has_room(size_t padded_bytes) const { return used_ + padded_bytes <= capacity_; }
  size_t capacity() const { return capacity_; }
  void forget(size_t capacity);  // all slots are free again

  struct Slot {
    size_t offset = 0;
    bool is_new = false;  // the caller copies the content there
  };
  // `stored` is what slots hold, from offset 0 on.
  Slot find_or_take(std::string_view content, const std::byte* stored);

 private:
  struct Taken {
    size_t offset = 0, bytes = 0;
  };
  size_t capacity_ = 0, used_ = 0;
  std::unordered_multimap<size_t, Taken> taken_;  // by hash of the content
};

// The arrays of one step are more than the ring holds: leave the step and grow().
struct NoRoomInStep final : std::exception {
  const char* what() const noexcept override { return "the host arrays of a step are more than its ring"; }
};

class Uploads {
 public:
  explicit Uploads(const Gpu& gpu, size_t capacity = size_t{8} << 20);
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // Pointers stay good until the next make_room(); an op calls it once, with all that it will put. Between
  // begin_step() and end_step() it throws NoRoomInStep where there is none.
  void make_room(std::initializer_list<size_t> bytes);
  // Between the two, arrays are kept on the host until flush() copies all that are not on the GPU yet, and
  // stand where they stood in the step before as long as they are as many and about as large: what has not
  // changed since then is not copied again.
  void begin_step();
  void end_step() { in_step_ = false; }
  void flush();
  void grow();  // to twice the size, outside of a step; all pointers end
  template <class T>
  const T* put(std::span<const T> host) {
    return static_cast<const T*>(put_bytes(host.data(), host.size_bytes()));
  }
  template <class T>
  const T* put_alone(std::span<const T> host) {
    make_room({host.size_bytes()});
    return put(host);
  }

 private:
  const void* put_bytes(const void* host, size_t bytes);
  void copy(size_t offset, size_t bytes);
  void allocate(size_t capacity);
  void free_all();

  const Gpu& gpu_;
  UploadSlots slots_;
  std::byte *pinned_ = nullptr, *device_ = nullptr;
  bool in_step_ = false;
  size_t same_ = 0;                             // so many bytes from the start are the same on both sides
  size_t changed_begin_ = 0, changed_end_ = 0;  // but for these, which flush() copies
};

}  // namespace lockstep::kernels::cuda
