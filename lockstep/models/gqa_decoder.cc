#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models {
namespace {

// Attention of one layer. All layers share the config and the rope tables.
class GqaMixer final : public Mixer {
 public:
  GqaMixer(const GqaConfig& config, std::shared_ptr<const RopeTables> rope, size_t keys_idx,
           const GqaWeights& weights)
      : config_(config), rope_(std::move(rope)), keys_idx_(keys_idx), weights_(weights) {}
  TensorView run(const TensorView& x, const Batch& batch, const ForwardContext& context) const override {
    return run_gqa(config_, weights_, *rope_, batch, batch.caches[keys_idx_], batch.caches[keys_idx_ + 1], x,
                   context);
  }

 private:
  const GqaConfig config_;
  const std::shared_ptr<const RopeTables> rope_;
  const size_t keys_idx_;
  const GqaWeights weights_;
};

class Description final : public ModelDescription {
 public:
  explicit Description(GqaDecoderConfig config) : config_(std::move(config)) {}
  std::string_view family() const override { return config_.family; }
  int context_length() const override { return config_.decoder.context_length; }

  planning::ModelShape shape() const override {
    return shape_of(config_.decoder, config_.attention.num_heads, num_params(config_.attention));
  }

  std::vector<CacheNeed> cache_needs(const Shards& shards) const override {
    const int64_t values =
        heads_of(config_.attention, shards.attention).kv.size() * config_.attention.head_dim;
    std::vector<CacheNeed> needs;
    for (int layer = 0; layer < config_.decoder.num_layers; ++layer) {
      needs.push_back({.layer = layer, .what = "keys", .values_per_token = values});
      needs.push_back({.layer = layer, .what = "values", .values_per_token = values});
    }
    return needs;
  }

  Result<std::unique_ptr<Model>> load(const WeightSource& source, const Shards& shards) const override {
    const auto rope =
        std::make_shared<const RopeTables>(config_.rope, config_.decoder.context_length, *shards.memory);
    return load_decoder(
        config_.decoder, source, shards, [&](WeightReader& reader, const std::string& prefix, int layer) {
          return make_gqa_mixer(
              config_.attention, rope, 2 * static_cast<size_t>(layer),
              read_gqa_weights(reader, prefix + "self_attn.", config_.attention, shards.attention));
        });
  }

 private:
  const GqaDecoderConfig config_;
};

}  // namespace

std::unique_ptr<const Mixer> make_gqa_mixer(const GqaConfig& config, std::shared_ptr<const RopeTables> rope,
                                            size_t keys_idx, const GqaWeights& weights) {
  return std::make_unique<GqaMixer>(config, std::move(rope), keys_idx, weights);
}

double num_params(const GqaConfig& config) {
  const double query_and_output = double{1} * config.num_heads * (config.query_width() + config.head_dim);
  return config.hidden * (query_and_output + 2.0 * config.num_kv_heads * config.head_dim);
}

RopeConfig read_whole_rope(ConfigReader& reader, int head_dim) {
  const RopeConfig rope = read_partial_rope(reader, head_dim, 1.0);
  if (rope.dim != head_dim)
    reader.refuse("partial_rotary_factor", "is below 1, which this family does not have");
  return rope;
}

void refuse_sliding_window(ConfigReader& reader) {
  if (reader.flag_or("use_sliding_window", false) && reader.has("sliding_window"))
    reader.refuse("use_sliding_window", "true is not handled");
  for (const std::string& type : reader.texts("layer_types"))
    if (type != "full_attention") {
      reader.refuse("layer_types", fmt::format("holds \"{}\", handled is full_attention", type));
      return;
    }
}

Result<std::unique_ptr<const ModelDescription>> describe_gqa_decoder(ConfigReader& reader,
                                                                     GqaDecoderConfig config) {
  config.attention.rope = config.rope.dim;
  if (const Status status = reader.status(); !status) return status.error();
  return std::unique_ptr<const ModelDescription>(std::make_unique<Description>(std::move(config)));
}

}  // namespace lockstep::models
