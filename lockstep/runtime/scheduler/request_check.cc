#include "lockstep/runtime/scheduler/request_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

namespace lockstep::runtime {
namespace {

enum class Lower : uint8_t { kIncluded, kExcluded };

struct Range {
  const char* field;
  double value, low, high;
  Lower lower = Lower::kIncluded;
};

// Written so that NaN is outside.
bool inside(const Range& r) {
  return (r.lower == Lower::kIncluded ? r.value >= r.low : r.value > r.low) && r.value <= r.high;
}

// Counts in full, parameters as their user wrote them (0.1f is 0.1, not 0.10000000149).
std::string number(double value) {
  return std::abs(value) < 0x1p53 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                                : fmt::format("{:.7g}", value);
}

Status check_range(const Range& r) {
  if (inside(r)) return Done{};
  const char* open = r.lower == Lower::kIncluded ? "" : "above ";
  return invalid_argument(r.field, "{} is {}; allowed is {}{} to {}", r.field, number(r.value), open,
                          number(r.low), number(r.high));
}

Status check_ids(const char* field, std::span<const int32_t> ids, int vocab) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab; });
  if (bad == ids.end()) return Done{};
  return invalid_argument(field, "{}: id {} at position {} is outside the vocabulary; allowed is 0 to {}",
                          field, *bad, bad - ids.begin(), vocab - 1);
}

Status check_length(const Request& request, const SchedulerLimits& limits) {
  if (request.prompt.empty())
    return invalid_argument("prompt", "the prompt holds 0 tokens; it must hold at least 1");
  const size_t room =
      request.max_new_tokens > 0 ? 1 : 0;  // a prompt that is only scored needs no room behind it
  const size_t wanted = request.prompt.size() + room;
  if (wanted > static_cast<size_t>(limits.context_length))
    return invalid_argument("prompt",
                            "the prompt has {} tokens and needs room for {} more; the context holds {}",
                            request.prompt.size(), room, limits.context_length);
  if (wanted > static_cast<size_t>(limits.max_sequence_tokens()))
    return invalid_argument(
        "prompt",
        "the prompt has {} tokens and needs room for {} more; the cache of a replica holds {} ({} "
        "pages of {} tokens)",
        request.prompt.size(), room, int64_t{limits.pages_per_replica} * limits.page_size,
        limits.pages_per_replica, limits.page_size);
  return Done{};
}

}  // namespace

Status check_sampling(const SamplingParams& sampling, int vocab) {
  const Range ranges[] = {
      {"temperature", sampling.temperature, 0, kMaxTemperature},
      {"top_k", static_cast<double>(sampling.top_k), 0, std::numeric_limits<int>::max()},
      {"top_p", sampling.top_p, 0, 1},
      {"min_p", sampling.min_p, 0, 1},
      {"repetition_penalty", sampling.repetition_penalty, 0, kMaxRepetitionPenalty, Lower::kExcluded},
      {"presence_penalty", sampling.presence_penalty, -kMaxPenalty, kMaxPenalty},
      {"frequency_penalty", sampling.frequency_penalty, -kMaxPenalty, kMaxPenalty},
  };
  for (const Range& range : ranges)
    if (Status status = check_range(range); !status) return status;
  if (sampling.logit_bias.size() > static_cast<size_t>(vocab))
    return invalid_argument("logit_bias", "logit_bias has {} entries; the vocabulary has {}",
                            sampling.logit_bias.size(), vocab);
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (Status status = check_ids("logit_bias", {&id, 1}, vocab); !status) return status;
    if (!inside({"logit_bias", bias, -kMaxLogitBias, kMaxLogitBias}))
      return invalid_argument("logit_bias", "logit_bias of id {} is {}; allowed is {} to {}", id,
                              number(bias), number(-kMaxLogitBias), number(kMaxLogitBias));
  }
  return Done{};
}

Status check_request(const Request& request, const ModelInfo& model, const SchedulerLimits& limits) {
  constexpr double kMaxInt = std::numeric_limits<int>::max();
  const double top_logprobs = std::min(model.vocab, kMaxTopLogprobs);
  const Range ranges[] = {
      {"max_tokens", static_cast<double>(request.max_new_tokens), 0, kMaxInt},
      {"min_tokens", static_cast<double>(request.min_new_tokens), 0,
       static_cast<double>(request.max_new_tokens)},
      {"logprobs", static_cast<double>(request.num_top_logprobs), -1, top_logprobs},
      {"prompt_logprobs", static_cast<double>(request.prompt_logprobs), -1, top_logprobs},
      {"prompt_top_logits", static_cast<double>(request.prompt_top_logits), 0,
       static_cast<double>(model.vocab)},
      {"priority", static_cast<double>(request.priority), -kMaxPriority, kMaxPriority},
      {"replica", static_cast<double>(request.replica.value_or(0)), 0,
       static_cast<double>(limits.shape.num_replicas - 1)},
  };
  for (const Range& range : ranges)
    if (Status status = check_range(range); !status) return status;
  for (const auto& [field, name] : {std::pair("cache_salt", &request.cache_salt), {"user", &request.tenant}})
    if (name->size() > kMaxNameBytes)
      return invalid_argument(field, "{} has {} bytes; allowed are up to {}", field, name->size(),
                              kMaxNameBytes);
  if (request.constraint && request.ignore_eos)
    return invalid_argument("ignore_eos",
                            "ignore_eos is true and the output is constrained: what must end cannot go "
                            "on after {} tokens; leave one of them out",
                            request.max_new_tokens);
  if (Status status = check_length(request, limits); !status) return status;
  if (Status status = check_ids("prompt", request.prompt, model.vocab); !status) return status;
  if (request.stop_token_ids.size() > kMaxStopTokens)
    return invalid_argument("stop_token_ids", "stop_token_ids has {} ids; allowed are up to {}",
                            request.stop_token_ids.size(), kMaxStopTokens);
  if (Status status = check_ids("stop_token_ids", request.stop_token_ids, model.vocab); !status)
    return status;
  return check_sampling(request.sampling, model.vocab);
}

}  // namespace lockstep::runtime
