#include "lockstep/models/qwen3/config.h"

#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models::qwen3 {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  GqaDecoderConfig config{.family = "qwen3", .decoder = read_decoder(reader)};
  config.attention = read_gqa(reader, config.decoder.hidden, config.decoder.norm_eps,
                              {.head_dim = GqaDefaults::HeadDim::k128});
  config.attention.head_norm = GqaConfig::HeadNorm::kQueriesAndKeys;
  config.rope = read_whole_rope(reader, config.attention.head_dim);
  config.windows = read_optional_windows(reader, config.decoder.num_layers);
  return describe_gqa_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::qwen3
