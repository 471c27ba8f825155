#pragma once
// Decoders with latent attention: what a family of them reads from its config, and the description made of
// it.
#include <string>
#include <vector>

#include "lockstep/models/blocks/mla.h"
#include "lockstep/models/decoder_config.h"
#include "lockstep/models/model.h"

namespace lockstep::models {

struct MlaDecoderConfig {
  std::string_view family;  // of a literal
  DecoderConfig decoder;
  MlaConfig mla;
  RopeConfig rope;
  std::vector<std::string> notes;  // see ModelDescription::notes
};

// Sizes of attention and rope, and which layers are dense; the experts are the family's to read. Refuses what
// none of these families is handled with.
MlaDecoderConfig read_mla_decoder(ConfigReader& reader, std::string_view family);

// The error lists every problem that the reader has met.
Result<std::unique_ptr<const ModelDescription>> describe_mla_decoder(ConfigReader& reader,
                                                                     MlaDecoderConfig config);

}  // namespace lockstep::models
