#pragma once
// The description and the loading of every family whose layers all mix by grouped-query attention; such a
// family adds how its config.json is read.
#include "lockstep/models/blocks/gqa.h"
#include "lockstep/models/decoder.h"
#include "lockstep/models/decoder_config.h"
#include "lockstep/models/model.h"

namespace lockstep::models {

struct GqaDecoderConfig {
  std::string_view family;  // of a literal
  DecoderConfig decoder;
  GqaConfig attention;
  RopeConfig rope;
  std::vector<int> windows;  // [num_layers], see GqaConfig::window; empty: no layer has one
};

// The error lists every problem that the reader has met.
Result<std::unique_ptr<const ModelDescription>> describe_gqa_decoder(ConfigReader& reader,
                                                                     GqaDecoderConfig config);

// Attention of one layer, whose keys are the batch's cache `keys_idx` and whose values are the one after it.
std::unique_ptr<const Mixer> make_gqa_mixer(const GqaConfig& config, std::shared_ptr<const RopeTables> rope,
                                            size_t keys_idx, const GqaWeights& weights);
// Of one layer.
double num_params(const GqaConfig& config);

// Families that rotate whole heads.
RopeConfig read_whole_rope(ConfigReader& reader, int head_dim, double base = 10000);
// Families that may see only the last tokens in some layers: layer_types names those (full_attention or
// sliding_attention), sliding_window the number of tokens. [num_layers], none without layer_types.
std::vector<int> read_layer_windows(ConfigReader& reader, int num_layers);
// The same where layer_types is the only way of saying so that is handled.
std::vector<int> read_optional_windows(ConfigReader& reader, int num_layers);

}  // namespace lockstep::models
