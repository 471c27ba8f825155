// Rows of a paged cache as floats, as attention reads them: one after the other, or their columns.
#include "lockstep/kernels/cpu/vector/cached_rows.h"

#include <algorithm>
#include <cstring>

#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/vector/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/cpu/vector/cached_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lockstep/kernels/cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

void copy_rows(const CachedRows& from, float* out) {
  with_elements(from.cache, [&](const auto* cache) HWY_ATTR {
    for (const int64_t row : from.rows) {
      const auto* numbers = cache + row * from.cache.stride[0] + from.column;
      for_each_vector(static_cast<size_t>(from.width), [&](size_t i, size_t n) HWY_ATTR {
        store_up_to(load_up_to(numbers + i, n), out + i, n);
      });
      out += from.width;
    }
  });
}

// Four rows at a time become groups of four numbers, which are then put where they belong.
template <class T>
void copy_columns_of(const CachedRows& from, const T* cache, float* out, int64_t stride) {
  const auto count = static_cast<int64_t>(from.rows.size());
  for (int64_t first = 0; first < (count + kPaddedRows - 1) / kPaddedRows * kPaddedRows; first += 4) {
    const T* row[4];
    for (int64_t i = 0; i < 4; ++i)
      row[i] = cache + from.rows[static_cast<size_t>(std::min(first + i, count - 1))] * from.cache.stride[0] +
               from.column;
    for_each_vector(static_cast<size_t>(from.width), [&](size_t i, size_t n) HWY_ATTR {
      HWY_ALIGN float group[4 * kLanes];
      hn::StoreInterleaved4(load_up_to(row[0] + i, n), load_up_to(row[1] + i, n), load_up_to(row[2] + i, n),
                            load_up_to(row[3] + i, n), Floats(), group);
      float* to = out + static_cast<int64_t>(i) * stride + first;
      for (size_t column = 0; column < n; ++column, to += stride)
        std::memcpy(to, group + 4 * column, 4 * sizeof(float));
    });
  }
}

void copy_columns(const CachedRows& from, float* out, int64_t stride) {
  with_elements(from.cache, [&](const auto* cache) HWY_ATTR { copy_columns_of(from, cache, out, stride); });
}

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(copy_rows);
HWY_EXPORT(copy_columns);

void vector_copy_rows(const CachedRows& from, float* out) { HWY_DYNAMIC_DISPATCH(copy_rows)(from, out); }
void vector_copy_columns(const CachedRows& from, float* out, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(copy_columns)(from, out, stride);
}

}  // namespace lockstep::kernels::cpu
#endif
