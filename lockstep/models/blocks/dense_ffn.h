#pragma once
// The gated FFN: down( silu(x · gateᵀ) ⊙ (x · upᵀ) ).
#include "lockstep/models/model.h"
#include "lockstep/models/weights.h"

namespace lockstep::models {

struct FfnWeights {
  WeightView gate, up;  // [local width, hidden]
  WeightView down;      // [hidden, local width]
};

// prefix: "model.layers.0.mlp."
FfnWeights read_ffn(WeightReader& reader, const std::string& prefix, int64_t hidden, int64_t width,
                    Shard shard);

// [rows, hidden]: the rank's share of the sum over the width's shards.
TensorView run_ffn(const FfnWeights& weights, const TensorView& x, const ForwardContext& context);

}  // namespace lockstep::models
