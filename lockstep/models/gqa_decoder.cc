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
  kernels::Readers readers() const override {
    const bool round = weights_.q.is_bf16() && weights_.k.is_bf16() && weights_.v.is_bf16();
    return round ? kernels::Readers::kNextRounds : kernels::Readers::kAny;
  }

 private:
  const GqaConfig config_;
  const std::shared_ptr<const RopeTables> rope_;
  const size_t keys_idx_;
  const GqaWeights weights_;
};

class GqaDescription final : public ModelDescription {
 public:
  explicit GqaDescription(GqaDecoderConfig config)
      : config_(std::move(config)), rope_(config_.rope, config_.decoder.context_length) {}
  std::string_view family() const override { return config_.family; }
  int context_length() const override { return config_.decoder.context_length; }
  ParameterCounts parameters() const override {
    return count_parameters(shape(), config_.decoder.head == DecoderConfig::Head::kOwn ? 2 : 1);
  }

  planning::ModelShape shape() const override {
    return shape_of(config_.decoder, config_.attention.num_heads, num_params(config_.attention));
  }

  std::vector<CacheNeed> cache_needs(const Shards& shards) const override {
    const int64_t values =
        heads_of(config_.attention, shards.attention).kv.size() * config_.attention.head_dim;
    std::vector<CacheNeed> needs;
    const int num_layers = config_.decoder.num_layers + (shards.drafting == planning::Drafting::kMtp ? 1 : 0);
    for (int layer = 0; layer < num_layers; ++layer) {
      needs.push_back({.layer = layer, .what = "keys", .values_per_token = values});
      needs.push_back({.layer = layer, .what = "values", .values_per_token = values});
    }
    return needs;
  }

  Result<std::unique_ptr<Model>> load(const WeightSource& source, const Shards& shards) const override {
    const auto rope = rope_.get(*shards.memory);
    return load_decoder(
        config_.decoder, source, shards, [&](WeightReader& reader, const std::string& prefix, int layer) {
          const auto at = static_cast<size_t>(layer);
          GqaConfig attention = config_.attention;
          if (at < config_.windows.size()) attention.window = config_.windows[at];
          return make_gqa_mixer(attention, rope, 2 * at,
                                read_gqa_weights(reader, prefix + "self_attn.", attention, shards.attention));
        });
  }

 private:
  const GqaDecoderConfig config_;
  const SharedRopeTables rope_;
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

RopeConfig read_whole_rope(ConfigReader& reader, int head_dim, double base) {
  const RopeConfig rope = read_partial_rope(reader, head_dim, 1.0, base);
  if (rope.dim != head_dim)
    reader.refuse("partial_rotary_factor", "is below 1, which this family does not have");
  return rope;
}

std::vector<int> read_layer_windows(ConfigReader& reader, int num_layers) {
  const std::vector<std::string> types = reader.texts("layer_types");
  if (types.empty()) return {};
  if (types.size() != static_cast<size_t>(num_layers))
    reader.refuse("layer_types", fmt::format("names {} layers of {}", types.size(), num_layers));
  const auto window = static_cast<int>(reader.integer_or("sliding_window", 0, 0, INT32_MAX));
  std::vector<int> windows;
  for (const std::string& type : types) {
    const bool slides = type == "sliding_attention";
    if (!slides && type != "full_attention") {
      reader.refuse("layer_types",
                    fmt::format("holds \"{}\", handled are full_attention and sliding_attention", type));
      break;
    }
    if (slides && window == 0) {
      reader.refuse("layer_types", "holds sliding_attention, but sliding_window gives no number of tokens");
      break;
    }
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

std::vector<int> read_optional_windows(ConfigReader& reader, int num_layers) {
  if (!reader.has("layer_types") && reader.flag_or("use_sliding_window", false) &&
      reader.has("sliding_window"))
    reader.refuse("use_sliding_window", "true is handled only with layer_types, which says in which layers");
  return read_layer_windows(reader, num_layers);
}

Result<std::unique_ptr<const ModelDescription>> describe_gqa_decoder(ConfigReader& reader,
                                                                     GqaDecoderConfig config) {
  config.attention.rope = config.rope.dim;
  if (const Status status = reader.status(); !status) return status.error();
  return std::unique_ptr<const ModelDescription>(std::make_unique<GqaDescription>(std::move(config)));
}

}  // namespace lockstep::models
