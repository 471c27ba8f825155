#include "lockstep/tensors/number_formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace lockstep {

float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

float from_e2m1(uint8_t code) {
  constexpr std::array<float, 8> kMagnitudes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = kMagnitudes[code & 7u];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

uint8_t to_e4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const float magnitude = std::min(std::abs(value), 448.0f);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -6);
  // In steps of the last mantissa bit, an exact scaling; nearbyint rounds ties to even.
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  // Eight steps are the implied one; a carry to sixteen runs on into the exponent by itself.
  return static_cast<uint8_t>(sign + ((exponent + 6) << 3) + steps);
}

uint8_t to_e2m1(float value) {
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const float m = std::abs(value);
  if (!(m > 0.25f)) return sign;
  const int code = m < 0.75f    ? 1
                   : m <= 1.25f ? 2
                   : m < 1.75f  ? 3
                   : m <= 2.5f  ? 4
                   : m < 3.5f   ? 5
                   : m <= 5     ? 6
                                : 7;
  return static_cast<uint8_t>(sign | code);
}

}  // namespace lockstep
