#pragma once
// How often each token stands in the prompt and in the output of one sequence: what penalties look at.
#include <cstdint>
#include <span>
#include <unordered_map>

namespace lockstep::runtime {

class TokenCounts {
 public:
  struct Count {
    bool in_prompt = false;
    int32_t in_output = 0;
  };

  TokenCounts() = default;
  explicit TokenCounts(std::span<const int32_t> prompt) {
    for (const int32_t id : prompt) counts_[id].in_prompt = true;
  }
  void add_output(int32_t id) { ++counts_[id].in_output; }

  // In no particular order: penalties of different tokens do not meet.
  const std::unordered_map<int32_t, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, Count> counts_;
};

}  // namespace lockstep::runtime
