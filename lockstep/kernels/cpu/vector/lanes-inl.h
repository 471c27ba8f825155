// Loads, stores and sums of vectors of floats that the kernels share. Compiled once for every instruction
// set, so the guard is Highway's toggle and not `pragma once`.
#if defined(LOCKSTEP_KERNELS_CPU_VECTOR_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_VECTOR_LANES_INL_H_
#undef LOCKSTEP_KERNELS_CPU_VECTOR_LANES_INL_H_
#else
#define LOCKSTEP_KERNELS_CPU_VECTOR_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>

#include "lockstep/tensors/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using V = hn::Vec<Floats>;
constexpr size_t kLanes = hn::MaxLanes(Floats());

HWY_INLINE V load(const float* p) { return hn::LoadU(Floats(), p); }

// bf16 is the upper half of a float.
HWY_INLINE V load(const BF16* p) {
  const hn::Rebind<uint16_t, Floats> halves;
  const hn::RebindToUnsigned<Floats> words;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
}

// The same vector, in a register from here on: compilers may read an operand of several products from memory
// for each of them, and then loads are what takes time.
HWY_INLINE V in_register(V v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128  // those two hold no register
  __asm__("" : "+v"(v.raw));
#endif
  return v;
}

// The first `count` (< kLanes) elements, then zeros. Reads no byte behind them.
template <class T>
HWY_INLINE V load_part(const T* p, size_t count) {
  T padded[kLanes] = {};
  std::memcpy(padded, p, count % kLanes * sizeof(T));  // % tells the compiler that it fits
  return load(padded);
}

HWY_INLINE void store_part(V v, float* p, size_t count) {
  float whole[kLanes];
  hn::StoreU(v, Floats(), whole);
  std::memcpy(p, whole, count % kLanes * sizeof(float));
}

// out[i] = body(vector at i) for every i below count; the last, partial vector is padded with zeros.
template <class Body>
HWY_INLINE void for_each_vector(size_t count, Body&& body) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, kLanes);
  if (i < count) body(i, count - i);
}
template <class T>
HWY_INLINE V load_up_to(const T* p, size_t count) {
  return count == kLanes ? load(p) : load_part(p, count);
}
HWY_INLINE void store_up_to(V v, float* p, size_t count) {
  if (count == kLanes) {
    hn::StoreU(v, Floats(), p);
  } else {
    store_part(v, p, count);
  }
}

// The sums of the lanes of four vectors, as a vector of four. Each is added up in the same order, whatever
// the other three hold: a product that is alone has the same bits as one that is computed beside three
// others.
#if HWY_TARGET == HWY_SCALAR
struct FourFloats {
  float sum[4];
};
HWY_INLINE FourFloats sums_of_lanes(V a, V b, V c, V d) {
  return {{hn::GetLane(a), hn::GetLane(b), hn::GetLane(c), hn::GetLane(d)}};
}
HWY_INLINE void store_four(const FourFloats& sums, float* p) { std::memcpy(p, sums.sum, sizeof(sums.sum)); }
HWY_INLINE void add_four(const FourFloats& sums, float* p) {
  for (size_t i = 0; i < 4; ++i) p[i] += sums.sum[i];
}
#else
using Four = hn::FixedTag<float, 4>;
using FourFloats = hn::Vec<Four>;

template <class D>
HWY_INLINE FourFloats sum_of_blocks(D /*lanes*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

HWY_INLINE FourFloats sums_of_lanes(V a, V b, V c, V d) {
  const Floats f;
  const hn::Repartition<double, Floats> pairs;
  // In every block of four lanes: [a0 + a2, b0 + b2, a1 + a3, b1 + b3], then [a, b, c, d].
  const V ab = hn::Add(hn::InterleaveLower(f, a, b), hn::InterleaveUpper(f, a, b));
  const V cd = hn::Add(hn::InterleaveLower(f, c, d), hn::InterleaveUpper(f, c, d));
  const auto lower = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  const auto upper = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  return sum_of_blocks(f, hn::Add(hn::BitCast(f, lower), hn::BitCast(f, upper)));
}
HWY_INLINE void store_four(FourFloats sums, float* p) { hn::StoreU(sums, Four(), p); }
HWY_INLINE void add_four(FourFloats sums, float* p) {
  hn::StoreU(hn::Add(hn::LoadU(Four(), p), sums), Four(), p);
}
#endif

HWY_INLINE float sum_of_lanes(V v) {
  float sums[4];
  const V zero = hn::Zero(Floats());
  store_four(sums_of_lanes(v, zero, zero, zero), sums);
  return sums[0];
}

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
