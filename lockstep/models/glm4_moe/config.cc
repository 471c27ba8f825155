#include "lockstep/models/glm4_moe/config.h"

#include <algorithm>

#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models::glm4_moe {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  GqaDecoderConfig config{.family = "glm4_moe", .decoder = read_decoder(reader, {.norm_eps = 1e-5})};
  config.attention =
      read_gqa(reader, config.decoder.hidden, config.decoder.norm_eps, {.bias = GqaConfig::Bias::kQkv});
  if (reader.flag_or("use_qk_norm", false)) config.attention.head_norm = GqaConfig::HeadNorm::kQueriesAndKeys;
  config.rope = read_partial_rope(reader, config.attention.head_dim, 0.5);
  DecoderConfig& decoder = config.decoder;
  decoder.moe = read_sigmoid_moe(reader, decoder.hidden, {.num_shared_experts = 1});
  const int64_t first = reader.integer_or("first_k_dense_replace", 1, 0, decoder.num_layers);
  std::fill(decoder.layers.begin() + first, decoder.layers.end(), planning::ModelShape::Ffn::kExperts);
  config.windows = read_optional_windows(reader, decoder.num_layers);
  return describe_gqa_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::glm4_moe
