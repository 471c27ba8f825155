#include "lockstep/kernels/cpu/roofs.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/split.h"
#include "lockstep/kernels/cpu/compute_threads.h"
#include "lockstep/kernels/cpu/vector/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/cpu/vector/roofs.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lockstep/kernels/cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

// The sum of `count` floats, a multiple of 1024.
float read_all(const float* values, size_t count) {
  constexpr size_t kAhead = 512;  // floats: 2 KB
  V sums[4] = {hn::Zero(Floats()), hn::Zero(Floats()), hn::Zero(Floats()), hn::Zero(Floats())};
  for (size_t i = 0; i < count; i += 4 * kLanes) {
    for (size_t v = 0; v < 4; ++v) {
      const float* at = values + i + v * kLanes;
      __builtin_prefetch(
          reinterpret_cast<const float*>(reinterpret_cast<uintptr_t>(at) + sizeof(float) * kAhead));
      sums[v] = hn::Add(sums[v], load(at));
    }
  }
  return sum_of_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

// Runs `steps` × 12 independent fused multiply-adds; of two that compute the same a compiler would drop one.
float multiply_add(size_t steps) {
  const V by = hn::Set(Floats(), 0.999f), plus = hn::Set(Floats(), 0.001f);
  V acc[12];
  for (size_t a = 0; a < 12; ++a) acc[a] = hn::Set(Floats(), static_cast<float>(a));
  for (size_t i = 0; i < steps; ++i)
    for (V& a : acc) a = hn::MulAdd(a, by, plus);
  V sum = hn::Zero(Floats());
  for (const V& a : acc) sum = hn::Add(sum, a);
  return sum_of_lanes(sum);
}

double flops_of_step() { return 2.0 * 12 * static_cast<double>(kLanes); }

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace cpu {

HWY_EXPORT(read_all);
HWY_EXPORT(multiply_add);
HWY_EXPORT(flops_of_step);

namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // larger than caches
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSteps = size_t{1} << 20;
constexpr int kTries = 5;

struct Release {
  void operator()(float* memory) const { std::free(memory); }
};

// On large pages where the system has them.
std::unique_ptr<float, Release> memory_to_read() {
  std::unique_ptr<float, Release> memory(static_cast<float*>(std::aligned_alloc(kHugePage, kReadBytes)));
  LOCKSTEP_CHECK(memory != nullptr, "no {} bytes to measure with", kReadBytes);
  static_cast<void>(madvise(memory.get(), kReadBytes, MADV_HUGEPAGE));
  std::fill_n(memory.get(), kReadBytes / sizeof(float), 1.0f);
  return memory;
}

// body(thread's number) on all threads, the shortest of some tries, in seconds.
template <class Body>
double shortest(ComputeThreads& threads, Body&& body) {
  double best = 1e9;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto from = std::chrono::steady_clock::now();
    threads.for_each(threads.size(), body);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count());
  }
  return best;
}

}  // namespace
}  // namespace cpu

CpuRoofs measure_cpu_roofs(const CpuThreads& choice) {
  using namespace cpu;
  ComputeThreads threads(choice.count, ComputeThreads::Wait::kSpin);
  const auto memory = memory_to_read();
  std::vector<float> results(static_cast<size_t>(choice.count));  // so that nothing is left out
  constexpr int64_t kPieces = kReadBytes / 4096;
  const double read = shortest(threads, [&](int64_t item, int) {
    const Range pieces = split_range(kPieces, choice.count, item);
    results[static_cast<size_t>(item)] = HWY_DYNAMIC_DISPATCH(read_all)(
        memory.get() + 1024 * pieces.begin, static_cast<size_t>(1024 * pieces.size()));
  });
  const double multiply = shortest(threads, [&](int64_t item, int) {
    results[static_cast<size_t>(item)] = HWY_DYNAMIC_DISPATCH(multiply_add)(kSteps);
  });
  return {.read_bytes_per_second = static_cast<double>(kReadBytes) / read,
          .flops_per_second =
              choice.count * static_cast<double>(kSteps) * HWY_DYNAMIC_DISPATCH(flops_of_step)() / multiply};
}

}  // namespace lockstep::kernels
#endif
