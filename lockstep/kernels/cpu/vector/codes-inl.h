// Vectors of codes as floats, before zero point and factor. Compiled once for every instruction set, so the
// guard is Highway's toggle and not `pragma once`.
#if defined(LOCKSTEP_KERNELS_CPU_VECTOR_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_VECTOR_CODES_INL_H_
#undef LOCKSTEP_KERNELS_CPU_VECTOR_CODES_INL_H_
#else
#define LOCKSTEP_KERNELS_CPU_VECTOR_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include "lockstep/kernels/cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

using Words = hn::RebindToUnsigned<Floats>;
using Ints = hn::RebindToSigned<Floats>;
using W = hn::Vec<Words>;

// Each lane one byte of E4M3. Exponent and mantissa moved to their places in a float make a number that is
// too small by 2^120, subnormal ones included.
HWY_INLINE V numbers_of_e4m3(W bytes) {
  const Floats f;
  const Words u;
  const W magnitude = hn::And(bytes, hn::Set(u, 0x7f));
  const V value = hn::Mul(hn::BitCast(f, hn::ShiftLeft<20>(magnitude)), hn::Set(f, 0x1p120f));
  const W sign = hn::ShiftLeft<24>(hn::And(bytes, hn::Set(u, 0x80)));
  const auto is_nan = hn::RebindMask(f, hn::Eq(magnitude, hn::Set(u, 0x7f)));
  return hn::IfThenElse(is_nan, hn::BitCast(f, hn::Set(u, 0x7fc00000)), hn::Or(value, hn::BitCast(f, sign)));
}

// Each lane a code of E2M1: 0 and 1 are 0 and 0.5, from 2 on the code's bits are a float's.
HWY_INLINE V numbers_of_e2m1(W codes) {
  const Floats f;
  const Words u;
  const W magnitude = hn::And(codes, hn::Set(u, 7));
  const V small = hn::Mul(hn::ConvertTo(f, hn::BitCast(Ints(), magnitude)), hn::Set(f, 0.5f));
  const V large = hn::BitCast(f, hn::Add(hn::ShiftLeft<22>(magnitude), hn::Set(u, 126u << 23)));
  const auto is_small = hn::RebindMask(f, hn::Lt(magnitude, hn::Set(u, 2)));
  const W sign = hn::ShiftLeft<28>(hn::And(codes, hn::Set(u, 8)));
  return hn::Or(hn::IfThenElse(is_small, small, large), hn::BitCast(f, sign));
}

HWY_INLINE W load_bytes(const uint8_t* p) {
  return hn::PromoteTo(Words(), hn::LoadU(hn::Rebind<uint8_t, Floats>(), p));
}

HWY_INLINE V to_floats(W numbers) { return hn::ConvertTo(Floats(), hn::BitCast(Ints(), numbers)); }

HWY_INLINE V load_signed_bytes(const uint8_t* p) {
  const hn::Rebind<int8_t, Floats> bytes;
  return hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), hn::LoadU(bytes, reinterpret_cast<const int8_t*>(p))));
}

#if HWY_TARGET != HWY_SCALAR
// kLanes half bytes in their order, the first one in the lower half of *p.
HWY_INLINE W load_half_bytes(const uint8_t* p) {
  const hn::Half<Floats> half;
  const hn::Rebind<uint16_t, decltype(half)> pairs;
  const auto bytes = hn::PromoteTo(pairs, hn::LoadU(hn::Rebind<uint8_t, decltype(half)>(), p));
  const auto apart = hn::And(hn::Or(bytes, hn::ShiftLeft<4>(bytes)), hn::Set(pairs, 0x0f0f));
  return hn::PromoteTo(Words(), hn::BitCast(hn::Rebind<uint8_t, Floats>(), apart));
}
#endif

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
