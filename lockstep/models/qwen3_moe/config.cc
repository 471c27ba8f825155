#include "lockstep/models/qwen3_moe/config.h"

#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models::qwen3_moe {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  GqaDecoderConfig config{.family = "qwen3_moe", .decoder = read_decoder(reader)};
  config.attention = read_gqa(reader, config.decoder.hidden, config.decoder.norm_eps, {});
  config.attention.head_norm = GqaConfig::HeadNorm::kQueriesAndKeys;
  config.rope = read_whole_rope(reader, config.attention.head_dim);
  read_sparse_layers(reader, config.decoder);
  config.windows = read_optional_windows(reader, config.decoder.num_layers);
  return describe_gqa_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::qwen3_moe
