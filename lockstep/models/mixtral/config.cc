#include "lockstep/models/mixtral/config.h"

#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models::mixtral {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  GqaDecoderConfig config{.family = "mixtral", .decoder = read_decoder(reader, {.norm_eps = 1e-5})};
  DecoderConfig& decoder = config.decoder;
  config.attention = read_gqa(reader, decoder.hidden, decoder.norm_eps, {});
  config.rope = read_whole_rope(reader, config.attention.head_dim, 1e6);
  decoder.moe = {.hidden = decoder.hidden,
                 .num_experts = static_cast<int>(reader.integer("num_local_experts", 1, 1 << 16)),
                 .expert_width = decoder.dense_width,
                 .names = {.block = "block_sparse_moe.", .expert = {.gate = "w1", .up = "w3", .down = "w2"}}};
  decoder.moe.top_k = static_cast<int>(reader.integer("num_experts_per_tok", 1, decoder.moe.num_experts));
  decoder.layers.assign(decoder.layers.size(), planning::ModelShape::Ffn::kExperts);
  if (const auto window = static_cast<int>(reader.integer_or("sliding_window", 0, 0, INT32_MAX)); window > 0)
    config.windows.assign(decoder.layers.size(), window);
  return describe_gqa_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::mixtral
