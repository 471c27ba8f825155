#pragma once
// What a request may ask for, checked before it is accepted, on the thread that submits it. Pure.
#include "lockstep/base/check.h"
#include "lockstep/runtime/engine.h"
#include "lockstep/runtime/scheduler/limits.h"

namespace lockstep::runtime {

inline constexpr int kMaxTopLogprobs =
    1000;  // each costs a selection over the vocabulary and a place in every event
inline constexpr float kMaxTemperature = 100.0f;
inline constexpr float kMaxRepetitionPenalty = 100.0f;
inline constexpr float kMaxPenalty = 2.0f;      // presence and frequency, either sign
inline constexpr float kMaxLogitBias = 100.0f;  // either sign
inline constexpr size_t kMaxStopTokens = 1024;
inline constexpr int kMaxPriority = 1'000'000;             // either sign
inline constexpr size_t kMaxNameBytes = size_t{64} << 10;  // of a cache_salt, of a tenant

// Errors name value and allowed range; Error::field is the parameter in the API's spelling ("max_tokens",
// "top_p", …).
Status check_sampling(const SamplingParams& sampling, int vocab);
Status check_request(const Request& request, const ModelInfo& model, const SchedulerLimits& limits);

}  // namespace lockstep::runtime
