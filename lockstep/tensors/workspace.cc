#include "lockstep/tensors/workspace.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kSmallestChunk = size_t{1} << 20;

}  // namespace

TensorView Workspace::take(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view = view_of(nullptr, dtype, shape);
  const size_t bytes =
      (static_cast<size_t>(view.num_elements()) * size_of(dtype) + kLineBytes - 1) / kLineBytes * kLineBytes;
  while (at_.chunk < chunks_.size() && at_.used + bytes > chunks_[at_.chunk].bytes) at_ = {at_.chunk + 1, 0};
  if (at_.chunk == chunks_.size()) {
    const size_t grown = std::max({bytes, kSmallestChunk, this->bytes() / 2});
    Chunk& chunk = chunks_.emplace_back(Chunk{.buffer = Buffer(*memory_), .bytes = grown});
    chunk.begin = static_cast<std::byte*>(chunk.buffer.view(DType::kU8, {static_cast<int64_t>(grown)}).data);
  }
  view.data = chunks_[at_.chunk].begin + at_.used;
  at_.used += bytes;
  return view;
}

size_t Workspace::bytes() const {
  size_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.bytes;
  return sum;
}

}  // namespace lockstep
