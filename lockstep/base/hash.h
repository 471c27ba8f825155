#pragma once
// Small fixed hashes: the same on every host and build, so ranks may compare them. Not for hostile input.
#include <bit>
#include <cstdint>
#include <string_view>

namespace lockstep {

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA
// 2014).
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// An order-dependent running hash of integers and text.
class Hasher {
 public:
  constexpr Hasher& add(uint64_t value) {
    state_ = mix64(std::rotl(state_, 23) ^ value);
    return *this;
  }
  constexpr Hasher& add(std::string_view text) {
    add(text.size());
    for (const char c : text) add(static_cast<unsigned char>(c));
    return *this;
  }
  constexpr uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x4c6f636b73746570ULL;
};

// A counter-based stream: draw n of a seed, in [0, 1). Batch composition and rank count cannot change a draw.
constexpr double uniform_draw(uint64_t seed, uint64_t n) {
  return static_cast<double>(mix64(mix64(seed) ^ (n * 0xd1342543de82ef95ULL)) >> 11) * 0x1.0p-53;
}

}  // namespace lockstep
