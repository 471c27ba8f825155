#pragma once
// The gated FFN: down( silu(x · gateᵀ) ⊙ (x · upᵀ) ).
#include "lockstep/models/model.h"
#include "lockstep/models/weights.h"

namespace lockstep::models {

struct FfnWeights {
  WeightView gate, up;  // [local width, hidden]
  WeightView down;      // [hidden, local width]
};

struct FfnNames {
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
};

// prefix: "model.layers.0.mlp."
FfnWeights read_ffn(WeightReader& reader, const std::string& prefix, int64_t hidden, int64_t width,
                    Shard shard, const FfnNames& names = {});

// [rows, hidden]: the rank's share of the sum over the width's shards.
TensorView run_ffn(const FfnWeights& weights, const TensorView& x, const ForwardContext& context);

}  // namespace lockstep::models
