// Codes to floats, with the roundings of decode_row(): the differences are exact, and one product is rounded.
#include <algorithm>

#include "lockstep/kernels/cpu/vector/targets.h"
#include "lockstep/kernels/cpu/vector/vector_ops.h"
#include "lockstep/tensors/block_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/cpu/vector/decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lockstep/kernels/cpu/vector/codes-inl.h"
#include "lockstep/kernels/cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

// Zero point and factor of a run of columns.
struct Run {
  float zero = 0, scale = 1;
};
HWY_INLINE V scaled(V numbers, const Run& run) {
  return hn::Mul(hn::Sub(numbers, hn::Set(Floats(), run.zero)), hn::Set(Floats(), run.scale));
}

// `count` numbers of a byte each; numbers_of(first of kLanes bytes).
template <class NumbersOf>
HWY_INLINE void decode_bytes(const uint8_t* codes, int64_t count, const Run& run, float* out,
                             NumbersOf&& numbers_of) {
  int64_t i = 0;
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  for (; i + kStep <= count; i += kStep) hn::StoreU(scaled(numbers_of(codes + i), run), Floats(), out + i);
  if (i < count) {
    uint8_t padded[kLanes] = {};
    std::copy_n(codes + i, count - i, padded);
    const V last = scaled(numbers_of(static_cast<const uint8_t*>(padded)), run);
    store_part(last, out + i, static_cast<size_t>(count - i));
  }
}

// Columns [begin, begin + count) of a row of half bytes.
template <class NumbersOf, class NumberOf>
HWY_INLINE void decode_nibbles(const uint8_t* row, int64_t begin, int64_t count, float* out,
                               NumbersOf&& numbers_of, NumberOf&& number_of) {
  const auto one = [&](int64_t col) { return number_of(row[col / 2] >> (col % 2 == 0 ? 0 : 4) & 15); };
  int64_t i = 0;
  if (begin % 2 != 0 && count > 0) out[i++] = one(begin);
  constexpr auto kStep = static_cast<int64_t>(2 * kLanes);
  for (; i + kStep <= count; i += kStep) {
    const W bytes = load_bytes(row + (begin + i) / 2);
    hn::StoreInterleaved2(numbers_of(hn::And(bytes, hn::Set(Words(), 15))),
                          numbers_of(hn::ShiftRight<4>(bytes)), Floats(), out + i);
  }
  for (; i < count; ++i) out[i] = one(begin + i);
}

// A run of columns of two or one bytes each, from `col` of the stored matrix on.
void decode_run(QuantScheme::Element element, const uint8_t* row, int64_t col, int64_t count, const Run& run,
                float* out) {
  using enum QuantScheme::Element;
  switch (element) {
    case kE4M3:
      return decode_bytes(row + col, count, run, out,
                          [](const uint8_t* p) HWY_ATTR { return numbers_of_e4m3(load_bytes(p)); });
    case kU8:
      return decode_bytes(row + col, count, run, out,
                          [](const uint8_t* p) HWY_ATTR { return to_floats(load_bytes(p)); });
    case kI8:
      return decode_bytes(row + col, count, run, out,
                          [](const uint8_t* p) HWY_ATTR { return load_signed_bytes(p); });
    case kF16:
      for (int64_t i = 0; i < count; ++i) {
        const uint8_t* at = row + 2 * (col + i);
        out[i] = (from_f16(static_cast<uint16_t>(at[0] | at[1] << 8)) - run.zero) * run.scale;
      }
      return;
    case kE2M1:
    case kU4:
      return;  // decoded before they are scaled: a run may be shorter than what a vector of bytes holds
  }
}

void decode_half_bytes(QuantScheme::Element element, const uint8_t* row, int64_t begin, int64_t count,
                       float* out) {
  if (element == QuantScheme::Element::kE2M1) {
    decode_nibbles(
        row, begin, count, out, [](W codes) HWY_ATTR { return numbers_of_e2m1(codes); },
        [](int code) { return from_e2m1(static_cast<uint8_t>(code)); });
  } else {
    decode_nibbles(
        row, begin, count, out, [](W codes) HWY_ATTR { return to_floats(codes); },
        [](int code) { return static_cast<float>(code); });
  }
}

HWY_INLINE void scale_run(float* out, int64_t count, const Run& run) {
  int64_t i = 0;
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  for (; i + kStep <= count; i += kStep) hn::StoreU(scaled(load(out + i), run), Floats(), out + i);
  for (; i < count; ++i) out[i] = (out[i] - run.zero) * run.scale;
}

void decode(const WeightView& w, int64_t row, int64_t begin, int64_t count, float* out) {
  const QuantScheme::Element element = w.scheme.element;
  const uint8_t* codes = w.codes + (w.first_row + row) * w.row_bytes;
  const bool is_half = bits_of(element) == 4;
  if (is_half) decode_half_bytes(element, codes, w.first_col + begin, count, out);
  BlockRow blocks(w, row, begin);
  for (int64_t i = 0; i < count; blocks.advance()) {
    const int64_t n = std::min(blocks.run(), count - i);
    const Run run{static_cast<float>(blocks.zero()), blocks.scale() * w.factor};
    if (is_half) {
      scale_run(out + i, n, run);
    } else {
      decode_run(element, codes, w.first_col + begin + i, n, run, out + i);
    }
    i += n;
  }
}

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(decode);

void vector_decode_row(const WeightView& weight, int64_t row, int64_t begin, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(decode)(weight, row, begin, count, out);
}

}  // namespace lockstep::kernels::cpu
#endif
