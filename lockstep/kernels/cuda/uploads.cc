#include "lockstep/kernels/cuda/uploads.h"

#include <algorithm>
#include <cstring>

namespace lockstep::kernels::cuda {

Uploads::Uploads(const Gpu& gpu, size_t capacity) : gpu_(gpu), slots_(0) { allocate(capacity); }

Uploads::~Uploads() { free_all(); }

void Uploads::allocate(size_t capacity) {
  gpu_.use();
  void *pinned = nullptr, *device = nullptr;
  expect_success(cudaMallocHost(&pinned, capacity), "cudaMallocHost");
  pinned_ = static_cast<std::byte*>(pinned);
  expect_success(cudaMalloc(&device, capacity), "cudaMalloc");
  device_ = static_cast<std::byte*>(device);
  slots_.forget(capacity);
  same_ = changed_begin_ = changed_end_ = 0;
}

void Uploads::free_all() {
  if (pinned_ != nullptr) cudaFreeHost(pinned_);
  if (device_ != nullptr) cudaFree(device_);
  pinned_ = device_ = nullptr;
}

void Uploads::make_room(std::initializer_list<size_t> bytes) {
  size_t needed = 0;
  for (const size_t one : bytes) needed += UploadSlots::padded(one);
  if (slots_.has_room(needed)) return;
  if (in_step_) throw NoRoomInStep();
  gpu_.wait_idle();  // kernels may still read what is forgotten now
  if (needed > slots_.capacity()) {
    free_all();
    allocate(std::max(2 * slots_.capacity(), needed));
  } else {
    slots_.forget(slots_.capacity());
  }
}

void Uploads::grow() {
  LOCKSTEP_CHECK(!in_step_, "{} of {} bytes are in use by a step", slots_.used(), slots_.capacity());
  gpu_.wait_idle();
  const size_t capacity = 2 * slots_.capacity();
  free_all();
  allocate(capacity);
}

void Uploads::begin_step() {
  gpu_.wait_idle();
  slots_.forget(slots_.capacity());
  in_step_ = true;
}

void Uploads::flush() {
  if (changed_begin_ == changed_end_) return;
  copy(changed_begin_, changed_end_ - changed_begin_);
  changed_begin_ = changed_end_ = 0;
}

void Uploads::copy(size_t offset, size_t bytes) {
  expect_success(
      cudaMemcpyAsync(device_ + offset, pinned_ + offset, bytes, cudaMemcpyHostToDevice, gpu_.stream()),
      "upload");
  same_ = std::max(same_, offset + bytes);  // slots are taken one behind the other
}

const void* Uploads::put_bytes(const void* host, size_t bytes) {
  const auto slot = slots_.find_or_take({static_cast<const char*>(host), bytes}, pinned_);
  if (!slot.is_new || bytes == 0) return device_ + slot.offset;
  const size_t end = slot.offset + UploadSlots::padded(bytes);
  if (end <= same_ && std::memcmp(pinned_ + slot.offset, host, bytes) == 0) return device_ + slot.offset;
  std::memcpy(pinned_ + slot.offset, host, bytes);
  if (in_step_) {
    changed_begin_ = changed_begin_ == changed_end_ ? slot.offset : std::min(changed_begin_, slot.offset);
    changed_end_ = std::max(changed_end_, end);
  } else {
    copy(slot.offset, end - slot.offset);
  }
  return device_ + slot.offset;
}

}  // namespace lockstep::kernels::cuda
