#pragma once
// Logits as a function of the token history alone.
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/hash.h"

namespace lockstep::runtime {

// The history as a running hash: what a recurrent layer would keep.
class History {
 public:
  void add(int32_t token) {
    hasher_.add(static_cast<uint64_t>(token));
    ++num_tokens_;
  }
  uint64_t value() const { return hasher_.value(); }
  int32_t num_tokens() const { return num_tokens_; }

 private:
  Hasher hasher_;
  int32_t num_tokens_ = 0;
};

inline History history_of(std::span<const int32_t> tokens) {
  History history;
  for (const int32_t token : tokens) history.add(token);
  return history;
}

// Between -4 and 4, the same for the same history.
inline std::vector<float> scripted_logits(const History& history, int vocab) {
  std::vector<float> logits;
  for (int id = 0; id < vocab; ++id)
    logits.push_back(static_cast<float>(8 * uniform_draw(history.value(), static_cast<uint64_t>(id)) - 4));
  return logits;
}

}  // namespace lockstep::runtime
