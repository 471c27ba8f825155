#include "lockstep/models/blocks/dense_ffn.h"

namespace lockstep::models {

FfnWeights read_ffn(WeightReader& reader, const std::string& prefix, int64_t hidden, int64_t width,
                    Shard shard, const FfnNames& names) {
  const Range keep = shard.of(width);
  return {.gate = reader.weight_rows(prefix + names.gate + ".weight", width, hidden, keep),
          .up = reader.weight_rows(prefix + names.up + ".weight", width, hidden, keep),
          .down = reader.weight_cols(prefix + names.down + ".weight", hidden, width, keep)};
}

TensorView run_ffn(const FfnWeights& weights, const TensorView& x, const ForwardContext& context) {
  const TensorView gate = context.workspace.take({x.rows(), weights.gate.rows()});
  const TensorView up = context.workspace.take({x.rows(), weights.up.rows()});
  const TensorView out = context.workspace.take({x.rows(), weights.down.rows()});
  context.kernels.linear({.x = x, .w = weights.gate, .out = gate});
  context.kernels.linear({.x = x, .w = weights.up, .out = up});
  context.kernels.silu_mul({.gate = gate, .up = up, .out = gate});
  context.kernels.linear({.x = gate, .w = weights.down, .out = out});
  return out;
}

}  // namespace lockstep::models
