#include "lockstep/models/deepseek_v3/config.h"

#include <cmath>

#include "lockstep/models/config_reader.h"

namespace lockstep::models::deepseek_v3 {
namespace {

constexpr int64_t kMost = 1 << 24;

MlaConfig read_mla(ConfigReader& reader, int hidden, const RopeConfig& rope) {
  MlaConfig mla;
  mla.hidden = hidden;
  mla.num_heads = static_cast<int>(reader.integer("num_attention_heads", 1, 1 << 16));
  mla.q_lora = static_cast<int>(reader.integer_or("q_lora_rank", 0, 0, kMost));
  mla.latent = static_cast<int>(reader.integer("kv_lora_rank", 1, kMost));
  mla.nope = static_cast<int>(reader.integer("qk_nope_head_dim", 1, 1 << 16));
  mla.rope = rope.dim;
  mla.value = static_cast<int>(reader.integer("v_head_dim", 1, 1 << 16));
  mla.scale =
      static_cast<float>(softmax_scale_factor(rope) / std::sqrt(static_cast<double>(mla.nope + mla.rope)));
  return mla;
}

// Layers before first_k_dense_replace are dense; after it every moe_layer_freq-th has experts.
void read_expert_layers(ConfigReader& reader, DecoderConfig& decoder) {
  const auto first = reader.integer_or("first_k_dense_replace", 0, 0, decoder.num_layers);
  const auto every = reader.integer_or("moe_layer_freq", 1, 1, 1 << 12);
  for (int64_t layer = first; layer < decoder.num_layers; ++layer)
    if (layer % every == 0) decoder.layers[static_cast<size_t>(layer)] = planning::ModelShape::Ffn::kExperts;
  decoder.moe = read_sigmoid_moe(reader, decoder.hidden, {});
}

Result<Config> read_config(const Json& json) {
  ConfigReader reader(json);
  Config config{.decoder = read_decoder(reader)};
  const auto rope_dim = static_cast<int>(reader.integer("qk_rope_head_dim", 2, 1 << 16));
  if (rope_dim % 2 != 0) reader.refuse("qk_rope_head_dim", fmt::format("{} is odd", rope_dim));
  config.rope = read_rope(reader, rope_dim);
  config.mla = read_mla(reader, config.decoder.hidden, config.rope);
  read_expert_layers(reader, config.decoder);
  if (reader.flag_or("attention_bias", false)) reader.refuse("attention_bias", "true is not handled");
  if (!reader.flag_or("rope_interleave", true)) reader.refuse("rope_interleave", "false is not handled");
  if (const Status status = reader.status(); !status) return status.error();
  return config;
}

class Description final : public ModelDescription {
 public:
  explicit Description(const Config& config) : config_(config) {}
  std::string_view family() const override { return "deepseek_v3"; }
  int context_length() const override { return config_.decoder.context_length; }

  planning::ModelShape shape() const override {
    const MlaConfig& mla = config_.mla;
    const double query = mla.q_lora > 0 ? 1.0 * mla.hidden * mla.q_lora +
                                              1.0 * mla.q_lora * mla.num_heads * (mla.nope + mla.rope)
                                        : 1.0 * mla.hidden * mla.num_heads * (mla.nope + mla.rope);
    return shape_of(config_.decoder, mla.num_heads,
                    query + 1.0 * mla.hidden * mla.cache_width() +
                        1.0 * mla.latent * mla.num_heads * (mla.nope + mla.value) +
                        1.0 * mla.hidden * mla.num_heads * mla.value);
  }

  std::vector<CacheNeed> cache_needs(const Shards& /*every rank keeps the whole latent*/) const override {
    std::vector<CacheNeed> needs;
    for (int layer = 0; layer < config_.decoder.num_layers; ++layer)
      needs.push_back({.layer = layer, .what = "latent", .values_per_token = config_.mla.cache_width()});
    return needs;
  }

  Result<std::unique_ptr<Model>> load(const WeightSource& source, const Shards& shards) const override {
    return load_model(config_, source, shards);
  }

 private:
  const Config config_;
};

}  // namespace

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  const auto config = read_config(json);
  if (!config) return config.error();
  return std::unique_ptr<const ModelDescription>(std::make_unique<Description>(*config));
}

}  // namespace lockstep::models::deepseek_v3
