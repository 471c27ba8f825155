#include "lockstep/models/gpt_oss/config.h"

#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models::gpt_oss {
namespace {

// Where layer_types is absent the even layers have the window.
std::vector<int> read_windows(ConfigReader& reader, int num_layers) {
  if (reader.has("layer_types")) return read_layer_windows(reader, num_layers);
  const auto window = static_cast<int>(reader.integer_or("sliding_window", 128, 1, INT32_MAX));
  std::vector<int> windows(static_cast<size_t>(num_layers), 0);
  for (size_t layer = 0; layer < windows.size(); layer += 2) windows[layer] = window;
  return windows;
}

MoeConfig read_moe_config(ConfigReader& reader, const DecoderConfig& decoder) {
  MoeConfig moe{.hidden = decoder.hidden,
                .expert_width = decoder.dense_width,
                .router_bias = MoeConfig::RouterBias::kOfLogits,
                .layout = MoeConfig::Layout::kInterleaved,
                .names = {.router = "router."}};
  moe.num_experts = static_cast<int>(reader.integer("num_local_experts", 1, 1 << 16));
  const char* top_k = reader.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token";
  moe.top_k = static_cast<int>(reader.integer(top_k, 1, moe.num_experts));
  moe.gating = {.limit = static_cast<float>(reader.number_or("swiglu_limit", 7.0, 1e-6, 1e6)),
                .alpha = static_cast<float>(reader.number_or("swiglu_alpha", 1.702, 1e-6, 1e6)),
                .up_shift = 1};
  return moe;
}

}  // namespace

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  GqaDecoderConfig config{.family = "gpt_oss", .decoder = read_decoder(reader, {.norm_eps = 1e-5})};
  DecoderConfig& decoder = config.decoder;
  config.attention =
      read_gqa(reader, decoder.hidden, decoder.norm_eps,
               {.head_dim = GqaDefaults::HeadDim::k64, .has_bias = GqaDefaults::HasBias::kYes});
  config.attention.sinks = GqaConfig::Sinks::kOnePerHead;
  config.rope = read_whole_rope(reader, config.attention.head_dim, 150000);
  if (config.rope.scaling == RopeConfig::Scaling::kNone && !reader.has("rope_parameters") &&
      !reader.has("rope_scaling"))
    reader.refuse("rope_scaling", "is missing");
  config.windows = read_windows(reader, decoder.num_layers);
  decoder.moe = read_moe_config(reader, decoder);
  decoder.layers.assign(decoder.layers.size(), planning::ModelShape::Ffn::kExperts);
  return describe_gqa_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::gpt_oss
