#pragma once
// Tests that need a GPU are skipped, with the reason, where there is none.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "lockstep/kernels/device.h"
#include "tests/gpu/host_views.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/paged_cache.h"

namespace lockstep::kernels::test {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    const auto facts = device_facts(Device::kCuda);
    if (!facts) GTEST_SKIP() << facts.error().message;
    gpu_ = make_kernels({.device = Device::kCuda}, 0);
    reference_ = make_reference_kernels();
  }

  Kernels& gpu() { return *gpu_; }
  Kernels& reference() { return *reference_; }

 private:
  std::unique_ptr<Kernels> gpu_, reference_;
};

// ‖out − ref‖ / ‖ref‖, not a number where one of them is not.
inline double relative_error(const Matrix& out, const Matrix& reference) {
  double difference = 0, size = 0;
  for (int64_t row = 0; row < out.rows(); ++row)
    for (int64_t col = 0; col < out.cols(); ++col) {
      const double of_reference = static_cast<double>(reference.at(row, col));
      const double off = static_cast<double>(out.at(row, col)) - of_reference;
      difference += off * off;
      size += of_reference * of_reference;
    }
  return difference == 0 ? 0 : std::sqrt(difference) / std::sqrt(size);
}

inline void expect_close(const Matrix& out, const Matrix& reference, double bound) {
  out.expect_written_exactly();
  const double error = relative_error(out, reference);
  EXPECT_TRUE(error <= bound) << "relative error " << error << ", allowed " << bound << " for " << out.rows()
                              << " rows of " << out.cols();
}

}  // namespace lockstep::kernels::test
