#pragma once
// Descriptions of matrices for the GPU's copy engine. Those of weights are kept: they stay where they are.
#include <map>
#include <tuple>

#include "lockstep/kernels/cuda/gpu.h"
#include "lockstep/kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

// [rows, cols] bf16 at a 16-byte address, rows a multiple of 8 numbers apart.
struct MappedMatrix {
  const void* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  int box_rows = kMapRows;  // a box is so many rows by kMapCols columns
  auto operator<=>(const MappedMatrix&) const = default;
};

TensorMap make_tensor_map(const MappedMatrix& matrix);

// [rows, heads, width] bf16 contiguous at a 16-byte address; a box is box_rows by box_heads by kMapCols
// columns.
struct MappedHeads {
  const void* data = nullptr;
  int64_t rows = 0, heads = 0, width = 0;
  int box_rows = 0, box_heads = 0;
};
TensorMap make_tensor_map(const MappedHeads& heads);

class TensorMaps {
 public:
  const TensorMap& of(const MappedMatrix& matrix);

 private:
  std::map<MappedMatrix, TensorMap> made_;
};

}  // namespace lockstep::kernels::cuda
