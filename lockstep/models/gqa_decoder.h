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
RopeConfig read_whole_rope(ConfigReader& reader, int head_dim);
// Families that may see only the last tokens in some layers, which is not handled.
void refuse_sliding_window(ConfigReader& reader);

}  // namespace lockstep::models
