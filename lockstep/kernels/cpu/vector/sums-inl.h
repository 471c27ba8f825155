// What the products of plain and of coded weights share: the sizes of tiles and the order of sums. Compiled
// once for every instruction set, so the guard is Highway's toggle and not `pragma once`.
#if defined(LOCKSTEP_KERNELS_CPU_VECTOR_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_VECTOR_SUMS_INL_H_
#undef LOCKSTEP_KERNELS_CPU_VECTOR_SUMS_INL_H_
#else
#define LOCKSTEP_KERNELS_CPU_VECTOR_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "lockstep/kernels/cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

constexpr size_t kMaxRows = 6;  // rows of a tile
// Outputs of a tile by its rows: as many as the registers hold beside the operands (32 on AVX-512 and Arm,
// else 16).
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;
constexpr size_t outs_of_tile(size_t rows) {
  if (rows == 1) return 8;
  if (kManyRegisters) return rows == 2 ? 8 : 4;
  return rows <= 3 ? 4 : 2;
}

// The inner dimension is cut after each kInnerBlock values, the sum of each piece reduced to one float and
// the pieces added in order. For every number of rows: it is part of what the result means.
constexpr size_t kInnerBlock = 1024;
// Calls body with the number of rows as a constant.
template <class Body>
HWY_INLINE void with_row_count(size_t rows, Body&& body) {
  switch (rows) {
    case 1:
      return body(std::integral_constant<size_t, 1>());
    case 2:
      return body(std::integral_constant<size_t, 2>());
    case 3:
      return body(std::integral_constant<size_t, 3>());
    case 4:
      return body(std::integral_constant<size_t, 4>());
    case 5:
      return body(std::integral_constant<size_t, 5>());
    default:
      return body(std::integral_constant<size_t, kMaxRows>());
  }
}

// to[o] += the lanes of acc[o], of each output in the same order whatever stands beside it.
template <size_t kOuts>
HWY_INLINE void add_sums(const V (&acc)[kOuts], float* to) {
  const V zero = hn::Zero(Floats());
  for (size_t o = 0; o < kOuts; o += 4, to += 4) {
    const auto sums = sums_of_lanes(acc[o], o + 1 < kOuts ? acc[o + 1] : zero,
                                    o + 2 < kOuts ? acc[o + 2] : zero, o + 3 < kOuts ? acc[o + 3] : zero);
    if constexpr (kOuts % 4 == 0) {
      add_four(sums, to);
    } else {
      float each[4];
      store_four(sums, each);
      for (size_t i = 0; i < kOuts; ++i) to[i] += each[i];
    }
  }
}

// The same for a tile: four sums at a time, of whichever rows they are.
template <size_t kRows, size_t kOuts>
HWY_INLINE void add_tile_sums(const V (&acc)[kRows][kOuts], float* out, size_t out_stride) {
  if constexpr (kOuts % 4 == 0) {
    for (size_t r = 0; r < kRows; ++r) add_sums<kOuts>(acc[r], out + r * out_stride);
  } else {
    constexpr size_t kCount = kRows * kOuts;
    const auto at = [&](size_t i)
                        HWY_ATTR { return i < kCount ? acc[i / kOuts][i % kOuts] : hn::Zero(Floats()); };
    float each[(kCount + 3) / 4 * 4];
    for (size_t i = 0; i < kCount; i += 4)
      store_four(sums_of_lanes(at(i), at(i + 1), at(i + 2), at(i + 3)), each + i);
    for (size_t i = 0; i < kCount; ++i) out[i / kOuts * out_stride + i % kOuts] += each[i];
  }
}

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
