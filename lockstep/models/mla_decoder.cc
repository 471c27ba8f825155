#include "lockstep/models/mla_decoder.h"

#include <algorithm>
#include <cmath>

#include "lockstep/models/decoder.h"

namespace lockstep::models {
namespace {

constexpr int64_t kMost = 1 << 24;

// Attention of one layer. All layers share the config and the rope tables.
class MlaMixer final : public Mixer {
 public:
  MlaMixer(const MlaConfig& config, std::shared_ptr<const RopeTables> rope, size_t cache_idx,
           MlaWeights weights)
      : config_(config), rope_(std::move(rope)), cache_idx_(cache_idx), weights_(weights) {}
  TensorView latents(const TensorView& x, const ForwardContext& context) const override {
    return mla_latents(config_, weights_, x, context);
  }
  TensorView run(const TensorView& x, const Batch& batch, const ForwardContext& context) const override {
    return run_mla(config_, weights_, *rope_, batch, batch.caches[cache_idx_], x, context);
  }

 private:
  const MlaConfig config_;
  const std::shared_ptr<const RopeTables> rope_;
  const size_t cache_idx_;
  const MlaWeights weights_;
};

MlaWeights read_attention(WeightReader& reader, const std::string& prefix, const MlaConfig& config,
                          Shard shard) {
  const Range heads = shard.of(config.num_heads);
  const int64_t query = config.nope + config.rope, key_value = config.nope + config.value;
  const auto per_head = [&](int64_t width) { return Range{heads.begin * width, heads.end * width}; };
  MlaWeights weights;
  if (config.q_lora > 0) {
    weights.q_a = reader.weight(prefix + "q_a_proj.weight", config.q_lora, config.hidden);
    weights.q_a_norm = reader.vector(prefix + "q_a_layernorm.weight", config.q_lora);
    weights.q_b = reader.weight_rows(prefix + "q_b_proj.weight", config.num_heads * query, config.q_lora,
                                     per_head(query));
  } else {
    weights.q_b = reader.weight_rows(prefix + "q_proj.weight", config.num_heads * query, config.hidden,
                                     per_head(query));
  }
  weights.kv_a = reader.weight(prefix + "kv_a_proj_with_mqa.weight", config.cache_width(), config.hidden);
  weights.kv_a_norm = reader.vector(prefix + "kv_a_layernorm.weight", config.latent);
  weights.kv_b = reader.weight_rows(prefix + "kv_b_proj.weight", config.num_heads * key_value, config.latent,
                                    per_head(key_value));
  weights.o = reader.weight_cols(prefix + "o_proj.weight", config.hidden, config.num_heads * config.value,
                                 per_head(config.value));
  return weights;
}

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
  const auto has_experts = [&](int64_t layer) { return layer >= first && layer % every == 0; };
  for (int64_t layer = 0; layer < decoder.num_layers; ++layer)
    if (has_experts(layer)) decoder.layers[static_cast<size_t>(layer)] = planning::ModelShape::Ffn::kExperts;
  if (!has_experts(decoder.num_layers)) decoder.mtp_ffn = planning::ModelShape::Ffn::kDense;
}

class MlaDescription final : public ModelDescription {
 public:
  explicit MlaDescription(MlaDecoderConfig config)
      : config_(std::move(config)), rope_(config_.rope, config_.decoder.context_length) {}
  std::string_view family() const override { return config_.family; }
  int context_length() const override { return config_.decoder.context_length; }
  ParameterCounts parameters() const override {
    return count_parameters(shape(), config_.decoder.head == DecoderConfig::Head::kOwn ? 2 : 1);
  }
  std::vector<std::string> notes() const override { return config_.notes; }
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

  // Every rank keeps the whole latent, whichever heads it has.
  std::vector<CacheNeed> cache_needs(const Shards& shards) const override {
    std::vector<CacheNeed> needs;
    const int num_layers = config_.decoder.num_layers + (shards.drafting == planning::Drafting::kMtp ? 1 : 0);
    for (int layer = 0; layer < num_layers; ++layer)
      needs.push_back({.layer = layer, .what = "latent", .values_per_token = config_.mla.cache_width()});
    return needs;
  }

  Result<std::unique_ptr<Model>> load(const WeightSource& source, const Shards& shards) const override {
    const auto rope = rope_.get(*shards.memory);
    return load_decoder(config_.decoder, source, shards,
                        [&](WeightReader& reader, const std::string& prefix, int layer) {
                          return std::make_unique<MlaMixer>(
                              config_.mla, rope, static_cast<size_t>(layer),
                              read_attention(reader, prefix + "self_attn.", config_.mla, shards.attention));
                        });
  }

 private:
  const MlaDecoderConfig config_;
  const SharedRopeTables rope_;
};

}  // namespace

MlaDecoderConfig read_mla_decoder(ConfigReader& reader, std::string_view family) {
  MlaDecoderConfig config{.family = family, .decoder = read_decoder(reader)};
  const auto rope_dim = static_cast<int>(reader.integer("qk_rope_head_dim", 2, 1 << 16));
  if (rope_dim % 2 != 0) reader.refuse("qk_rope_head_dim", fmt::format("{} is odd", rope_dim));
  config.rope = read_rope(reader, rope_dim);
  config.mla = read_mla(reader, config.decoder.hidden, config.rope);
  config.decoder.latent_width = config.mla.latent_width();
  if (config.mla.q_lora > 0)
    config.decoder.latent_params = 1.0 * config.mla.hidden * config.mla.latent_width();
  read_expert_layers(reader, config.decoder);
  if (reader.flag_or("attention_bias", false)) reader.refuse("attention_bias", "true is not handled");
  if (!reader.flag_or("rope_interleave", true)) reader.refuse("rope_interleave", "false is not handled");
  return config;
}

Result<std::unique_ptr<const ModelDescription>> describe_mla_decoder(ConfigReader& reader,
                                                                     MlaDecoderConfig config) {
  if (const Status status = reader.status(); !status) return status.error();
  return std::unique_ptr<const ModelDescription>(std::make_unique<MlaDescription>(std::move(config)));
}

}  // namespace lockstep::models
