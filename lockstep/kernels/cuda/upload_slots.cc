#include <cstring>
#include <functional>

#include "lockstep/kernels/cuda/uploads.h"

namespace lockstep::kernels::cuda {

void UploadSlots::forget(size_t capacity) {
  capacity_ = capacity;
  used_ = 0;
  taken_.clear();
}

UploadSlots::Slot UploadSlots::find_or_take(std::string_view content, const std::byte* stored) {
  const size_t hash = std::hash<std::string_view>{}(content);
  const auto [first, last] = taken_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const Taken& taken = at->second;
    if (taken.bytes == content.size() &&
        std::memcmp(stored + taken.offset, content.data(), content.size()) == 0)
      return {.offset = taken.offset};
  }
  const size_t padded_bytes = padded(content.size());
  LOCKSTEP_CHECK(has_room(padded_bytes), "{} bytes behind {} of {}", padded_bytes, used_, capacity_);
  const Slot slot{.offset = used_, .is_new = true};
  used_ += padded_bytes;
  taken_.emplace(hash, Taken{slot.offset, content.size()});
  return slot;
}

}  // namespace lockstep::kernels::cuda
