#pragma once
// The pre-norm decoder that all families share: embedding, layers of a mixer (attention of some kind) and a
// feed-forward part, final norm, LM head. A family says what its parts are; the order of stages and edges is
// written here once.
#include <functional>
#include <memory>
#include <string>

#include "lockstep/models/decoder_config.h"
#include "lockstep/models/model.h"
#include "lockstep/models/weights.h"

namespace lockstep::models {

// Mixes the rows of a sequence. x: [rows, hidden], the replica's rows, or [rows, latent_width] of what
// latents() made of them where the config has such a width; returns the rank's share of the sum over shards.
class Mixer {
 public:
  virtual ~Mixer() = default;
  // Of each row alone. x: [rows, hidden], any rows.
  virtual TensorView latents(const TensorView& x, const ForwardContext& context) const;
  virtual TensorView run(const TensorView& x, const Batch& batch, const ForwardContext& context) const = 0;
  // Of x, where that is all rows of the step.
  virtual kernels::Readers readers() const { return kernels::Readers::kAny; }
};

// Reads the mixer of a layer. prefix: "model.layers.0."
using ReadMixer =
    std::function<std::unique_ptr<const Mixer>(WeightReader& reader, const std::string& prefix, int layer)>;

// All tensors that do not fit are listed in one error. The decoder's tensors begin with "model.", or
// with "model.language_model." where it is a part of a model that also sees.
Result<std::unique_ptr<Model>> load_decoder(const DecoderConfig& config, const WeightSource& source,
                                            const Shards& shards, const ReadMixer& read_mixer);

}  // namespace lockstep::models
