#include "lockstep/tensors/workspace.h"

#include <algorithm>
#include <new>

namespace lockstep {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallestChunk = size_t{1} << 20;

}  // namespace

void Workspace::Free::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kAlignment});
}

TensorView Workspace::take(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view = view_of(nullptr, dtype, shape);
  const size_t bytes =
      (static_cast<size_t>(view.num_elements()) * size_of(dtype) + kAlignment - 1) / kAlignment * kAlignment;
  while (at_.chunk < chunks_.size() && at_.used + bytes > chunks_[at_.chunk].bytes) at_ = {at_.chunk + 1, 0};
  if (at_.chunk == chunks_.size()) {
    const size_t grown = std::max({bytes, kSmallestChunk, this->bytes() / 2});
    chunks_.push_back({{new (std::align_val_t{kAlignment}) std::byte[grown], Free{}}, grown});
  }
  view.data = chunks_[at_.chunk].memory.get() + at_.used;
  at_.used += bytes;
  return view;
}

size_t Workspace::bytes() const {
  size_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.bytes;
  return sum;
}

}  // namespace lockstep
