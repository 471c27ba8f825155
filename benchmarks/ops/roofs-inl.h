// What one core of this machine can do at most, measured by the program that compares with it: bytes read
// from memory and fused multiply-adds, both with the widest vectors. Compiled once for every instruction set.
#if defined(LOCKSTEP_BENCHMARKS_OPS_ROOFS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_BENCHMARKS_OPS_ROOFS_INL_H_
#undef LOCKSTEP_BENCHMARKS_OPS_ROOFS_INL_H_
#else
#define LOCKSTEP_BENCHMARKS_OPS_ROOFS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The sum of `count` floats, a multiple of 1024.
float read_all(const float* values, size_t count) {
  const hn::ScalableTag<float> d;
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t i = 0; i < count; i += 4 * kLanes) {
    a = hn::Add(a, hn::LoadU(d, values + i));
    b = hn::Add(b, hn::LoadU(d, values + i + kLanes));
    c = hn::Add(c, hn::LoadU(d, values + i + 2 * kLanes));
    e = hn::Add(e, hn::LoadU(d, values + i + 3 * kLanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// Runs `steps` × 12 independent fused multiply-adds; leaves how many floating-point operations that were in
// *flops.
float multiply_add(size_t steps, double* flops) {
  const hn::ScalableTag<float> d;
  const auto by = hn::Set(d, 0.999f), plus = hn::Set(d, 0.001f);
  hn::Vec<hn::ScalableTag<float>> acc[12];
  for (auto& a : acc) a = hn::Set(d, 1.0f);
  for (size_t i = 0; i < steps; ++i) {
    for (auto& a : acc) a = hn::MulAdd(a, by, plus);
  }
  auto sum = hn::Zero(d);
  for (const auto& a : acc) sum = hn::Add(sum, a);
  *flops = 2.0 * 12 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
