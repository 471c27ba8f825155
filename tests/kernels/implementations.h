#pragma once
// The implementations that one test body runs for: the reference, and the vectorised kernels for each
// instruction set that this machine has, the widest first.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {

struct Implementation {
  std::string name;
  int64_t target = 0;  // Highway's bit; 0 for the reference
};

inline void PrintTo(const Implementation& implementation, std::ostream* out) { *out << implementation.name; }

inline std::vector<Implementation> implementations() {
  std::vector<Implementation> all = {{"reference", 0}};
#if HWY_ARCH_X86
  const std::vector<Implementation> candidates = {
      {"avx512", HWY_AVX3}, {"avx2", HWY_AVX2}, {"sse4", HWY_SSE4}};
#else
  const std::vector<Implementation> candidates = {{"neon", HWY_NEON}};
#endif
  hwy::SetSupportedTargetsForTest(0);
  for (const Implementation& candidate : candidates) {
    if ((hwy::SupportedTargets() & candidate.target) != 0) all.push_back(candidate);
  }
  all.push_back({"portable", HWY_SCALAR});
  return all;
}

class KernelsTest : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    if (GetParam().target == 0) {
      kernels_ = make_reference_kernels();
      return;
    }
    hwy::SetSupportedTargetsForTest(GetParam().target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    kernels_ = make_cpu_kernels();
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }

  bool is_reference() const { return GetParam().target == 0; }
  Kernels& kernels() { return *kernels_; }

 private:
  std::unique_ptr<Kernels> kernels_;
};

#define LOCKSTEP_FOR_EVERY_IMPLEMENTATION(Fixture)                                                    \
  INSTANTIATE_TEST_SUITE_P(Every, Fixture, testing::ValuesIn(::lockstep::kernels::implementations()), \
                           [](const auto& tested) { return tested.param.name; })

}  // namespace lockstep::kernels
