#pragma once
// Scratch memory of one rank: taken in a row, given back all at once. Grows while warm-up finds out what a
// step needs and then stays. Not thread-safe; views are good until the reset() or the release of the mark
// below them.
#include <vector>

#include "lockstep/tensors/memory.h"

namespace lockstep {

class Workspace {
 public:
  explicit Workspace(const Memory& memory = host_memory()) : memory_(&memory) {}

  // 64-byte aligned, not initialised.
  TensorView take(DType dtype, std::initializer_list<int64_t> shape);
  TensorView take(std::initializer_list<int64_t> shape) { return take(DType::kF32, shape); }

  struct Mark {
    size_t chunk = 0, used = 0;
  };
  Mark mark() const { return at_; }
  void release(Mark mark) { at_ = mark; }  // everything taken since the mark
  void reset() { at_ = {}; }
  size_t bytes() const;  // held in all

 private:
  struct Chunk {
    Buffer buffer;
    std::byte* begin = nullptr;
    size_t bytes = 0;
  };
  const Memory* memory_;
  std::vector<Chunk> chunks_;
  Mark at_;
};

}  // namespace lockstep
