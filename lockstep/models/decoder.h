#pragma once
// The pre-norm decoder that all families share: embedding, layers of a mixer (attention of some kind) and a
// feed-forward part, final norm, LM head. A family says what its parts are; the order of stages and edges is
// written here once.
#include <memory>
#include <vector>

#include "lockstep/models/blocks/dense_ffn.h"
#include "lockstep/models/blocks/moe_ffn.h"
#include "lockstep/models/model.h"

namespace lockstep::models {

// Mixes the rows of a sequence. x: [rows, hidden], the replica's rows; returns the rank's share of the sum
// over shards.
class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual TensorView run(const TensorView& x, const Batch& batch, const ForwardContext& context) const = 0;
};

struct DecoderLayer {
  TensorView mixer_norm, ffn_norm;  // [hidden]
  std::unique_ptr<const Mixer> mixer;
  planning::ModelShape::Ffn ffn = planning::ModelShape::Ffn::kDense;
  FfnWeights dense;  // one of the two
  MoeWeights experts;
};

struct DecoderParts {
  int hidden = 0, vocab = 0;
  float norm_eps = 1e-6f;
  MoeConfig moe;
  TensorView embedding;   // [vocab, hidden]
  TensorView final_norm;  // [hidden]
  TensorView head;        // [local vocab, hidden]
  std::vector<DecoderLayer> layers;
};

std::unique_ptr<Model> make_decoder(DecoderParts parts);

}  // namespace lockstep::models
