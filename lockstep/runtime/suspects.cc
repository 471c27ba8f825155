#include "lockstep/runtime/suspects.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/hash.h"

namespace lockstep::runtime {

uint64_t fingerprint_of(const Request& request) {
  if (request.blame == Request::Blame::kExempt) return kNoFingerprint;
  Hasher hash;
  const auto add_float = [&hash](float value) { hash.add(uint64_t{std::bit_cast<uint32_t>(value)}); };
  hash.add(request.prompt.size());
  for (const int32_t token : request.prompt) hash.add(static_cast<uint64_t>(token));
  const SamplingParams& sampling = request.sampling;
  for (const float value : {sampling.temperature, sampling.top_p, sampling.min_p, sampling.repetition_penalty,
                            sampling.presence_penalty, sampling.frequency_penalty})
    add_float(value);
  for (const auto& [token, bias] : sampling.logit_bias) {
    hash.add(static_cast<uint64_t>(token));
    add_float(bias);
  }
  for (const int value : {sampling.top_k, request.max_new_tokens, request.min_new_tokens,
                          request.num_top_logprobs, request.prompt_top_logits})
    hash.add(static_cast<uint64_t>(value));
  return hash.value();
}

int Suspects::num_failures(uint64_t fingerprint) const {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(fingerprint);
  return found == failures_.end() ? 0 : found->second;
}

bool Suspects::empty() const {
  const std::lock_guard lock(mutex_);
  return failures_.empty();
}

Suspects::Verdict Suspects::verdict(uint64_t fingerprint) const {
  if (max_failures_ == 0) return Verdict::kFree;
  const int failures = num_failures(fingerprint);
  if (failures >= max_failures_) return Verdict::kRefused;
  return failures > 0 && failures == max_failures_ - 1 ? Verdict::kAlone : Verdict::kFree;
}

void Suspects::blame(uint64_t fingerprint) {
  if (fingerprint == kNoFingerprint) return;
  const std::lock_guard lock(mutex_);
  if (++failures_[fingerprint] > 1) return;
  by_age_.push_back(fingerprint);
  while (by_age_.size() > kMostRemembered) {
    failures_.erase(by_age_.front());
    by_age_.pop_front();
  }
}

void Suspects::clear(uint64_t fingerprint) {
  const std::lock_guard lock(mutex_);
  if (failures_.erase(fingerprint) > 0) std::erase(by_age_, fingerprint);
}

}  // namespace lockstep::runtime
