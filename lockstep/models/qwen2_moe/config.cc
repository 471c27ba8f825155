#include "lockstep/models/qwen2_moe/config.h"

#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models::qwen2_moe {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  GqaDecoderConfig config{.family = "qwen2_moe", .decoder = read_decoder(reader)};
  DecoderConfig& decoder = config.decoder;
  config.attention = read_gqa(
      reader, decoder.hidden, decoder.norm_eps,
      {.bias = GqaConfig::Bias::kQkv, .bias_key = "qkv_bias", .has_bias = GqaDefaults::HasBias::kYes});
  config.rope = read_whole_rope(reader, config.attention.head_dim);
  read_sparse_layers(reader, decoder);
  decoder.moe.shared_expert = MoeConfig::SharedExpert::kGated;
  decoder.moe.shared_width = static_cast<int>(reader.integer("shared_expert_intermediate_size", 1, 1 << 24));
  config.windows = read_optional_windows(reader, decoder.num_layers);
  return describe_gqa_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::qwen2_moe
