#pragma once
// The description and the loading of the families whose layers mix by gated DeltaNet, but for every few that
// have gated attention (Qwen3-Next and what follows it); such a family adds how its config.json is read.
#include "lockstep/models/blocks/gated_delta_net.h"
#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models {

struct HybridDecoderConfig {
  std::string_view family;  // of a literal
  DecoderConfig decoder;
  GqaConfig attention;
  RopeConfig rope;
  GatedDeltaNetConfig delta;
  enum class Mixing : uint8_t { kAttention, kDelta };
  std::vector<Mixing> mixing;  // of each layer
};

// What these families spell alike: all but the form of the router's weights and of delta.rows.
HybridDecoderConfig read_hybrid_decoder(ConfigReader& reader, std::string_view family);

// The error lists every problem that the reader has met.
Result<std::unique_ptr<const ModelDescription>> describe_hybrid_decoder(ConfigReader& reader,
                                                                        HybridDecoderConfig config);

}  // namespace lockstep::models
