#include "lockstep/runtime/sampler/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/hash.h"
#include "lockstep/runtime/sampler/selection.h"

namespace lockstep::runtime {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr size_t kBlock = 512;  // weights whose sum is kept while a draw looks for its block

// The position of a NaN or +infinity, or the size when there is none.
size_t find_unusable(std::span<const float> logits) {
  uint32_t bad = 0;
  for (const float logit : logits)
    bad |= static_cast<uint32_t>(!(logit <= std::numeric_limits<float>::max()));
  if (bad == 0) return logits.size();
  const auto found = std::find_if(logits.begin(), logits.end(),
                                  [](float logit) { return !(logit <= std::numeric_limits<float>::max()); });
  return static_cast<size_t>(found - logits.begin());
}

std::span<float> valid_logits(const DrawArgs& args) {
  const auto num_valid = static_cast<size_t>(args.num_valid_tokens);
  return num_valid == 0 ? args.logits : args.logits.first(std::min(num_valid, args.logits.size()));
}

// log(sum(exp(logit))), of which `most` is the largest logit.
double log_sum_exp(std::span<const float> logits, float most) {
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - most));
  return static_cast<double>(most) + std::log(sum);
}

void apply_penalties(std::span<float> logits, const SamplingParams& params, const TokenCounts& counts) {
  if (!uses_token_counts(params)) return;
  for (const auto& [id, count] : counts.counts()) {
    if (static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count.in_output == 0) continue;
    logit -= params.frequency_penalty * static_cast<float>(count.in_output);
    logit -= params.presence_penalty;
  }
}

void keep_allowed(std::span<float> logits, std::span<const uint32_t> allowed) {
  if (allowed.empty()) return;
  for (size_t i = 0; i < logits.size(); ++i)
    if (i / 32 >= allowed.size() || (allowed[i / 32] >> (i % 32) & 1) == 0) logits[i] = kNever;
}

void bar(std::span<float> logits, const DrawArgs& args) {
  std::vector<std::pair<size_t, float>> before;
  for (const int32_t id : args.barred) {
    const auto idx = static_cast<size_t>(id);
    if (idx >= logits.size()) continue;
    before.emplace_back(idx, logits[idx]);
    logits[idx] = kNever;
  }
  if (args.allowed.empty() || before.empty() || std::isfinite(largest_one(logits).value)) return;
  for (auto entry = before.rbegin(); entry != before.rend(); ++entry) logits[entry->first] = entry->second;
}

// The tokens that are left, in the order of their ids.
struct Candidates {
  std::vector<int32_t> ids;  // empty: the position is the id
  std::vector<float> kept;   // with ids: their values
  std::span<float> values;   // logits, then weights

  int32_t id(size_t idx) const { return ids.empty() ? static_cast<int32_t>(idx) : ids[idx]; }
};

Candidates keep_top_k(std::span<float> logits, int top_k) {
  Candidates candidates;
  if (top_k <= 0 || static_cast<size_t>(top_k) >= logits.size()) {
    candidates.values = logits;
    return candidates;
  }
  const Entry last = kth_largest(logits, static_cast<size_t>(top_k));
  for (size_t i = 0; i < logits.size(); ++i) {
    if (is_larger(last, {logits[i], static_cast<int32_t>(i)})) continue;
    candidates.ids.push_back(static_cast<int32_t>(i));
    candidates.kept.push_back(logits[i]);
  }
  candidates.values = candidates.kept;
  return candidates;
}

double sum_of(std::span<const float> weights) {
  std::array<double, 8> lanes{};
  size_t i = 0;
  for (; i + lanes.size() <= weights.size(); i += lanes.size())
    for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] += static_cast<double>(weights[i + lane]);
  for (; i < weights.size(); ++i) lanes[0] += static_cast<double>(weights[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Probabilities up to a common factor: the most likely token's weight is 1.
void to_weights(std::span<float> logits, float most, float temperature) {
  for (float& value : logits) value = std::exp((value - most) / temperature);
}

void keep_top_p(std::span<float> weights, float top_p) {
  if (top_p >= 1) return;
  const Entry last = last_of_share(weights, sum_of(weights), static_cast<double>(top_p));
  for (size_t i = 0; i < weights.size(); ++i)
    if (is_larger(last, {weights[i], static_cast<int32_t>(i)})) weights[i] = 0;
}

void keep_min_p(std::span<float> weights, float min_p) {
  if (min_p <= 0) return;
  for (float& weight : weights)
    if (weight < min_p) weight = 0;
}

// The first place where the running sum exceeds `uniform` of the total: by blocks, then inside one. Sums by
// blocks and inside them round differently, so the last weight of a block takes what its neighbours leave.
size_t draw_from(std::span<const float> weights, double uniform) {
  const size_t num_blocks = (weights.size() + kBlock - 1) / kBlock;
  std::vector<double> sums(num_blocks);
  double total = 0;
  for (size_t block = 0; block < num_blocks; ++block) {
    sums[block] = sum_of(weights.subspan(block * kBlock, std::min(kBlock, weights.size() - block * kBlock)));
    total += sums[block];
  }
  double left = uniform * total;
  size_t block = 0, last_block = 0;
  for (; block < num_blocks; ++block) {
    if (sums[block] > 0) last_block = block;
    if (left < sums[block]) break;
    left -= sums[block];
  }
  if (block == num_blocks) block = last_block;
  size_t chosen = block * kBlock;
  for (size_t i = block * kBlock; i < std::min(weights.size(), (block + 1) * kBlock); ++i) {
    if (weights[i] <= 0) continue;
    chosen = i;
    if (left < static_cast<double>(weights[i])) break;
    left -= static_cast<double>(weights[i]);
  }
  return chosen;
}

bool is_greedy(const SamplingParams& params) { return params.temperature <= 0 || params.top_k == 1; }

int32_t draw_id(std::span<float> logits, const Entry& most, const DrawArgs& args) {
  const SamplingParams& params = args.params;
  if (is_greedy(params)) return most.idx;
  const Candidates candidates = keep_top_k(logits, params.top_k);
  to_weights(candidates.values, most.value, params.temperature);
  keep_top_p(candidates.values, params.top_p);
  keep_min_p(candidates.values, params.min_p);
  return candidates.id(draw_from(candidates.values, uniform_draw(args.seed, args.position)));
}

struct Logprobs {
  std::vector<float> logits;  // as they came in
  double log_sum = 0;
  float of(int32_t id) const {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum);
  }
};

Logprobs logprobs_of(std::span<const float> logits) {
  return {.logits = {logits.begin(), logits.end()},
          .log_sum = log_sum_exp(logits, largest_one(logits).value)};
}

Error cannot_draw(std::string message) { return {ErrorCode::kInternal, std::move(message), ""}; }

}  // namespace

OutputToken scored_token(std::span<const float> logits, int32_t id, int num_top, int32_t num_valid) {
  const Logprobs logprobs = logprobs_of(logits);
  const size_t listed =
      num_valid > 0 ? std::min(logits.size(), static_cast<size_t>(num_valid)) : logits.size();
  OutputToken token{.token_id = id, .logprob = logprobs.of(id), .top = {}};
  for (const Entry& entry : largest(logits.first(listed), static_cast<size_t>(num_top)))
    token.top.push_back({entry.idx, logprobs.of(entry.idx)});
  return token;
}

bool draws_largest(const SamplingParams& params) {
  return is_greedy(params) && params.logit_bias.empty() && !uses_token_counts(params);
}

bool uses_token_counts(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
}

void adjust_logits(const DrawArgs& args) {
  const std::span<float> logits = valid_logits(args);
  for (const auto& [id, bias] : args.params.logit_bias)
    if (static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] += bias;
  apply_penalties(logits, args.params, args.counts);
  keep_allowed(logits, args.allowed);
  bar(logits, args);
}

Result<OutputToken> draw_token(const DrawArgs& args) {
  if (args.logits.empty()) return cannot_draw("there are 0 logits to draw from");
  if (const size_t bad = find_unusable(args.logits); bad < args.logits.size())
    return cannot_draw(
        fmt::format("the logit of id {} is {} at position {}", bad, args.logits[bad], args.position));

  OutputToken token;
  Logprobs logprobs;
  const std::span<float> logits = valid_logits(args);
  if (args.num_top_logprobs >= 0) {
    logprobs = logprobs_of(args.logits);
    for (const Entry& entry : largest(logits, static_cast<size_t>(args.num_top_logprobs)))
      token.top.push_back({entry.idx, logprobs.of(entry.idx)});
  }
  adjust_logits(args);
  const Entry most = largest_one(logits);
  if (!std::isfinite(most.value))
    return cannot_draw(
        fmt::format("none of {} ids may be drawn at position {}: {} are barred, the largest logit is {}",
                    logits.size(), args.position, args.barred.size(), most.value));
  token.token_id = draw_id(logits, most, args);
  if (args.num_top_logprobs >= 0) token.logprob = logprobs.of(token.token_id);
  return token;
}

}  // namespace lockstep::runtime
