#pragma once
// A non-owning view of numbers in memory, typed by value. No arithmetic, no allocation. The innermost stride
// is always 1; the others may be larger than the shape says (a slice of columns), so weights are used where
// the file mapped them.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "lockstep/base/check.h"

namespace lockstep {

enum class DType : uint8_t { kF32, kBF16, kF16, kF8E4M3, kF8E8M0, kI8, kI32, kI64, kU8 };

size_t size_of(DType dtype);
std::string_view name_of(DType dtype);  // "f32", "bf16", …

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  uint8_t num_dims = 0;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> stride{};  // in elements; stride[num_dims - 1] == 1

  bool empty() const { return data == nullptr || num_elements() == 0; }
  int64_t num_elements() const;  // 1 for a scalar (no dimensions)
  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return num_dims < 2 ? 1 : shape[1]; }

  // The elements as T; a dtype that is not T's is a bug.
  template <class T>
  T* as() const;

  // Views of a part: rows [begin, begin + count), columns [begin, begin + count) of a matrix.
  TensorView row_range(int64_t begin, int64_t count) const;
  TensorView col_range(int64_t begin, int64_t count) const;
};

// A contiguous view over memory that the caller keeps alive.
TensorView view_of(void* data, DType dtype, std::initializer_list<int64_t> shape);
inline TensorView view_of(float* data, std::initializer_list<int64_t> shape) {
  return view_of(data, DType::kF32, shape);
}
inline TensorView view_of(int32_t* data, std::initializer_list<int64_t> shape) {
  return view_of(data, DType::kI32, shape);
}

// bfloat16 as it is stored: the upper half of a float32. Conversion rounds to nearest even; NaN stays NaN.
struct BF16 {
  uint16_t bits = 0;
};
inline float to_float(BF16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
inline BF16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const uint32_t quiet_nan = bits | 0x400000;  // rounding could carry a NaN's payload away and leave infinity
  return {static_cast<uint16_t>((value != value ? quiet_nan : rounded) >> 16)};
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<BF16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::kU8;
}

template <class T>
T* TensorView::as() const {
  LOCKSTEP_CHECK(dtype == dtype_of<T>(), "{} read as {}", name_of(dtype), name_of(dtype_of<T>()));
  return static_cast<T*>(data);
}

}  // namespace lockstep
