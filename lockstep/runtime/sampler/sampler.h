#pragma once
// Draws one token from one row of logits. Pure functions; called from rank threads. What is drawn depends on
// the logits, the parameters, the sequence's own tokens, the seed and the position, and on nothing else: not
// on the batch, the chunks of the prompt or the number of ranks.
//
// In this order: logit_bias, repetition penalty, frequency and presence penalties, ids that may not be drawn,
// temperature, top_k, top_p, min_p. Each filter sees what the one before it left: top_p is a share of the
// top_k's probability.
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/runtime/engine.h"
#include "lockstep/runtime/sampler/token_counts.h"

namespace lockstep::runtime {

struct DrawArgs {
  std::span<float> logits;  // [vocab]; spoiled by the draw
  const SamplingParams& params;
  const TokenCounts& counts;            // read only when the penalties do something
  std::span<const int32_t> barred{};    // ids that may not be drawn at this position
  std::span<const uint32_t> allowed{};  // bit i % 32 of word i / 32: id i may be drawn; empty: all may
  int32_t num_valid_tokens = 0;         // ids at or above are never drawn or listed; 0: all are valid
  uint64_t seed = 0;
  uint64_t position = 0;  // of the token that is drawn, in its sequence
  int num_top_logprobs = -1;
};

// kInternal when there is nothing to draw from: a logit that is NaN or +infinity, or every id barred. Logits
// of -infinity are ids that cannot be drawn. Log probabilities are of all logits as they came in.
Result<OutputToken> draw_token(const DrawArgs& args);

// The first part of it: bias, penalties, and the ids that are barred or not allowed, applied to the valid
// logits in place. Where every allowed id is barred, none is: an output that must end may end.
void adjust_logits(const DrawArgs& args);

// Token `id` with its log probability, and the `num_top` most likely of the first `num_valid` ids (0: of
// all).
OutputToken scored_token(std::span<const float> logits, int32_t id, int num_top, int32_t num_valid);

// Whether the token that is drawn is the one with the largest logit, as the logits come in.
bool draws_largest(const SamplingParams& params);

bool uses_token_counts(const SamplingParams& params);

}  // namespace lockstep::runtime
