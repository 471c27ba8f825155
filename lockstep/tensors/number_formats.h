#pragma once
// The small number formats of published weights, one number at a time: what every decoder is tested against.
// E4M3 is OCP FP8's float8_e4m3fn (no infinities), E2M1 and E8M0 are those of OCP Microscaling Formats 1.0.
#include <bit>
#include <cstdint>
#include <limits>

namespace lockstep {

float from_f16(uint16_t bits);
float from_e2m1(uint8_t code);  // of the lower four bits

// 0x7f and 0xff are NaN. Exponent and mantissa moved to their places in a float make a number that is too
// small by 2^120, subnormal ones included.
inline float from_e4m3(uint8_t bits) {
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return (bits & 0x80) != 0 ? -value : value;
}

// 2^(bits - 127); 255 is NaN.
inline float from_e8m0(uint8_t bits) {
  if (bits == 255) return std::numeric_limits<float>::quiet_NaN();
  return bits == 0 ? 0x1p-127f : std::bit_cast<float>(uint32_t{bits} << 23);
}

// To the nearest, ties to even, saturated at the largest finite number; NaN stays NaN where the format has
// one and becomes zero in E2M1.
uint8_t to_e4m3(float value);  // largest 448
uint8_t to_e2m1(float value);  // largest 6

}  // namespace lockstep
