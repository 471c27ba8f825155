#include "lockstep/tensors/tensor.h"

namespace lockstep {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kI8:
    case DType::kU8:
      return 1;
    case DType::kI64:
      return 8;
  }
  fail_check(__FILE__, __LINE__, fmt::format("dtype {} is none", static_cast<int>(dtype)));
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF8E4M3:
      return "f8_e4m3";
    case DType::kF8E8M0:
      return "f8_e8m0";
    case DType::kI8:
      return "i8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

int64_t TensorView::num_elements() const {
  int64_t count = 1;
  for (int i = 0; i < num_dims; ++i) count *= shape[static_cast<size_t>(i)];
  return count;
}

TensorView TensorView::row_range(int64_t begin, int64_t count) const {
  LOCKSTEP_CHECK(num_dims >= 1 && begin >= 0 && count >= 0 && begin <= shape[0] && count <= shape[0] - begin,
                 "rows {} + {} of {}", begin, count, shape[0]);
  TensorView part = *this;
  part.shape[0] = count;
  if (begin > 0 && data != nullptr)  // a view of no rows may have no memory
    part.data = static_cast<std::byte*>(data) + static_cast<size_t>(begin * stride[0]) * size_of(dtype);
  return part;
}

TensorView TensorView::col_range(int64_t begin, int64_t count) const {
  LOCKSTEP_CHECK_EQ(static_cast<int>(num_dims), 2);
  LOCKSTEP_CHECK(begin >= 0 && count >= 0 && begin <= shape[1] && count <= shape[1] - begin,
                 "columns {} + {} of {}", begin, count, shape[1]);
  TensorView part = *this;
  part.shape[1] = count;
  if (begin > 0 && data != nullptr)
    part.data = static_cast<std::byte*>(data) + static_cast<size_t>(begin) * size_of(dtype);
  return part;
}

TensorView view_of(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view;
  LOCKSTEP_CHECK_LE(shape.size(), view.shape.size());
  view.data = data;
  view.dtype = dtype;
  view.num_dims = static_cast<uint8_t>(shape.size());
  size_t dim = 0;
  for (const int64_t size : shape) {
    LOCKSTEP_CHECK_GE(size, 0);
    view.shape[dim++] = size;
  }
  int64_t stride = 1;
  while (dim-- > 0) {
    view.stride[dim] = stride;
    stride *= view.shape[dim];
  }
  return view;
}

}  // namespace lockstep
