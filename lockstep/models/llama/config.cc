#include "lockstep/models/llama/config.h"

#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models::llama {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  GqaDecoderConfig config{.family = "llama", .decoder = read_decoder(reader)};
  config.attention = read_gqa(reader, config.decoder.hidden, config.decoder.norm_eps,
                              {.kv_heads = GqaDefaults::KvHeads::kAsManyAsHeads});
  config.rope = read_whole_rope(reader, config.attention.head_dim);
  if (reader.integer_or("sliding_window", config.decoder.context_length, 1, INT32_MAX) <
      config.decoder.context_length)
    reader.refuse("sliding_window", "below max_position_embeddings is not handled");
  return describe_gqa_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::llama
