#pragma once
// Some rows of a paged cache, or a part of their columns, as floats. Private to attention.
#include <cstdint>
#include <span>

#include "lockstep/tensors/tensor.h"

namespace lockstep::kernels::cpu {

struct CachedRows {
  const TensorView& cache;        // [rows, columns] f32 or bf16
  std::span<const int64_t> rows;  // one or more
  int64_t column = 0, width = 0;
};

void vector_copy_rows(const CachedRows& from, float* out);  // to [rows, width]
// To [width, stride]: column i begins at out + i · stride. Behind the last row's numbers come copies of them
// up to a multiple of kPaddedRows, so that whoever goes on with vectors needs no part of one.
constexpr int64_t kPaddedRows = 16;
void vector_copy_columns(const CachedRows& from, float* out, int64_t stride);

}  // namespace lockstep::kernels::cpu
