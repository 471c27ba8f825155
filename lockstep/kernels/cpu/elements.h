#pragma once
// Elements of views for the CPU implementations: pointers to rows, and one body for weights of either dtype.
#include "lockstep/tensors/tensor.h"

namespace lockstep::kernels::cpu {

inline float to_float(float value) { return value; }
using lockstep::to_float;  // of BF16

template <class T>
T* row_of(const TensorView& matrix, int64_t row) {
  return matrix.as<T>() + row * matrix.stride[0];
}

// Calls body(const float*) or body(const BF16*) with the first element of the weight.
template <class Body>
void with_elements(const TensorView& weight, Body&& body) {
  if (weight.dtype == DType::kBF16) {
    body(static_cast<const BF16*>(weight.as<BF16>()));
  } else {
    body(static_cast<const float*>(weight.as<float>()));
  }
}

}  // namespace lockstep::kernels::cpu
