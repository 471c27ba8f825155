// The small formats against their definitions: OCP 8-bit Floating Point Specification 1.0 (E4M3), OCP
// Microscaling Formats 1.0 (E2M1, E8M0), IEEE 754 binary16.
#include "lockstep/tensors/number_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

TEST(E4M3, EveryCodeIsWhatItsDefinitionSays) {
  for (int code = 0; code < 256; ++code) {
    const int sign = code >> 7, exponent = code >> 3 & 15, mantissa = code & 7;
    const float value = from_e4m3(static_cast<uint8_t>(code));
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const double magnitude =
        exponent == 0 ? mantissa / 8.0 * std::pow(2, -6) : (1 + mantissa / 8.0) * std::pow(2, exponent - 7);
    EXPECT_EQ(value, static_cast<float>(sign != 0 ? -magnitude : magnitude)) << code;
    EXPECT_EQ(std::signbit(value), sign != 0) << code;
  }
  EXPECT_EQ(from_e4m3(0x7e), 448);
  EXPECT_EQ(from_e4m3(0x01), 0x1p-9f);
}

TEST(E4M3, RoundsToTheNearestAndTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = from_e4m3(static_cast<uint8_t>(code)), high = from_e4m3(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;  // exact
    EXPECT_EQ(to_e4m3(low), code);
    EXPECT_EQ(to_e4m3(-low), code | 0x80);
    EXPECT_EQ(to_e4m3(middle), code % 2 == 0 ? code : code + 1) << code;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 1e9f)), code + 1);
  }
}

TEST(E4M3, SaturatesAndKeepsNaN) {
  for (const float large : {448.0f, 464.0f, 465.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(to_e4m3(large), 0x7e) << large;
    EXPECT_EQ(to_e4m3(-large), 0xfe) << large;
  }
  EXPECT_EQ(to_e4m3(std::nanf("")) & 0x7f, 0x7f);
  EXPECT_EQ(to_e4m3(0x1p-10f), 0);  // a tie between zero and the smallest
  EXPECT_EQ(to_e4m3(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(E2M1, HasEightMagnitudesAndRoundsTiesToEven) {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(from_e2m1(code), magnitudes[code]);
    EXPECT_EQ(from_e2m1(code | 8), -magnitudes[code]);
    EXPECT_EQ(to_e2m1(magnitudes[code]), code);
    if (code == 7) continue;
    const float middle = (magnitudes[code] + magnitudes[code + 1]) / 2;
    EXPECT_EQ(to_e2m1(middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(to_e2m1(-middle), (code % 2 == 0 ? code : code + 1) | 8) << middle;
    EXPECT_EQ(to_e2m1(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(to_e2m1(std::nextafter(middle, 9.0f)), code + 1);
  }
  EXPECT_EQ(to_e2m1(1e9f), 7);
  EXPECT_EQ(to_e2m1(-1e9f), 15);
  EXPECT_EQ(to_e2m1(std::nanf("")) & 7, 0);
}

TEST(E8M0, IsAPowerOfTwo) {
  EXPECT_EQ(from_e8m0(127), 1);
  EXPECT_EQ(from_e8m0(121), 0.015625f);
  EXPECT_EQ(from_e8m0(0), 0x1p-127f);
  EXPECT_EQ(from_e8m0(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(from_e8m0(255)));
}

TEST(F16, EveryCodeIsWhatItsDefinitionSays) {
  for (int code = 0; code < 0x10000; ++code) {
    const int exponent = code >> 10 & 31, mantissa = code & 1023;
    const float value = from_f16(static_cast<uint16_t>(code));
    if (exponent == 31) {
      EXPECT_TRUE(mantissa == 0 ? std::isinf(value) : std::isnan(value)) << code;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(std::abs(value), static_cast<float>(magnitude)) << code;
    }
    EXPECT_EQ(std::signbit(value), code >= 0x8000) << code;
  }
}

}  // namespace
}  // namespace lockstep
