#pragma once
// What `lockstep bench` sends to an endpoint and when: decided before the first request, from a seed or from
// a trace. Pure but for reading the trace's file: no clock, no network.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/cli/commands.h"

namespace lockstep::cli {

// Numbers of tokens: "512", "128-1024" (each equally likely) or "normal:512:128" (mean and deviation).
struct LengthDistribution {
  enum class Kind : uint8_t { kUniform, kNormal } kind = Kind::kUniform;
  double low = 0, high = 0;  // of kNormal: mean and deviation
  // Draw n of a seed; at least 1.
  int draw(uint64_t seed, uint64_t n) const;
};
Result<LengthDistribution> parse_lengths(std::string_view text, std::string_view flag);

// One request of the load, for one API.
struct PlannedRequest {
  double at_seconds = 0;  // after the start
  Json body;
  int max_tokens = 0;
};

struct LoadPlan {
  std::vector<PlannedRequest> requests;
  std::string source;  // in words
};

Result<LoadPlan> plan_load(const EndpointBench& bench);

// Text of about so many tokens: words that most tokenizers hold whole, drawn from the seed.
std::string words(uint64_t seed, int count);

}  // namespace lockstep::cli
