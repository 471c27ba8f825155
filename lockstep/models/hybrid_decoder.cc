#include "lockstep/models/hybrid_decoder.h"

#include <algorithm>

namespace lockstep::models {
namespace {

using enum HybridDecoderConfig::Mixing;

// Gated DeltaNet of one layer.
class DeltaMixer final : public Mixer {
 public:
  DeltaMixer(const GatedDeltaNetConfig& config, size_t window_idx, GatedDeltaNetWeights weights)
      : config_(config), window_idx_(window_idx), weights_(std::move(weights)) {}
  TensorView run(const TensorView& x, const Batch& batch, const ForwardContext& context) const override {
    return run_gated_delta_net(config_, weights_, batch, batch.caches[window_idx_],
                               batch.caches[window_idx_ + 1], x, context);
  }

 private:
  const GatedDeltaNetConfig config_;
  const size_t window_idx_;
  const GatedDeltaNetWeights weights_;
};

class HybridDescription final : public ModelDescription {
 public:
  explicit HybridDescription(HybridDecoderConfig config)
      : config_(std::move(config)), rope_(config_.rope, config_.decoder.context_length) {}
  std::string_view family() const override { return config_.family; }
  int context_length() const override { return config_.decoder.context_length; }
  ParameterCounts parameters() const override {
    return count_parameters(shape(), config_.decoder.head == DecoderConfig::Head::kOwn ? 2 : 1);
  }

  // Layers of either kind count as their mean.
  planning::ModelShape shape() const override {
    const auto num_delta =
        static_cast<double>(std::count(config_.mixing.begin(), config_.mixing.end(), kDelta));
    const auto num_layers = static_cast<double>(config_.mixing.size());
    const double params =
        num_params(config_.delta) * num_delta + num_params(config_.attention) * (num_layers - num_delta);
    return shape_of(config_.decoder, config_.attention.num_heads, params / num_layers);
  }

  // Two a layer.
  std::vector<CacheNeed> cache_needs(const Shards& shards) const override {
    const int64_t values =
        heads_of(config_.attention, shards.attention).kv.size() * config_.attention.head_dim;
    const DeltaState state = state_of(config_.delta, shards.attention);
    std::vector<CacheNeed> needs;
    for (int layer = 0; layer < config_.decoder.num_layers; ++layer) {
      if (config_.mixing[static_cast<size_t>(layer)] == kAttention) {
        needs.push_back({.layer = layer, .what = "keys", .values_per_token = values});
        needs.push_back({.layer = layer, .what = "values", .values_per_token = values});
      } else {
        needs.push_back({.layer = layer, .what = "window", .values_per_sequence = state.window});
        needs.push_back({.layer = layer, .what = "recurrent", .values_per_sequence = state.recurrent});
      }
    }
    return needs;
  }

  Result<std::unique_ptr<Model>> load(const WeightSource& source, const Shards& shards) const override {
    const auto rope = rope_.get(*shards.memory);
    const auto read_mixer = [&](WeightReader& reader, const std::string& prefix,
                                int layer) -> std::unique_ptr<const Mixer> {
      const auto cache_idx = 2 * static_cast<size_t>(layer);
      if (config_.mixing[static_cast<size_t>(layer)] == kAttention)
        return make_gqa_mixer(
            config_.attention, rope, cache_idx,
            read_gqa_weights(reader, prefix + "self_attn.", config_.attention, shards.attention));
      return std::make_unique<DeltaMixer>(
          config_.delta, cache_idx,
          read_gated_delta_net_weights(reader, prefix + "linear_attn.", config_.delta, shards.attention));
    };
    return load_decoder(config_.decoder, source, shards, read_mixer);
  }

 private:
  const HybridDecoderConfig config_;
  const SharedRopeTables rope_;
};

// Listed by layer_types; where that is absent, every full_attention_interval-th layer has attention.
std::vector<HybridDecoderConfig::Mixing> read_mixing(ConfigReader& reader, int num_layers) {
  std::vector<HybridDecoderConfig::Mixing> mixing;
  const auto every = reader.integer_or("full_attention_interval", 4, 1, 1 << 12);
  if (!reader.has("layer_types")) {
    for (int64_t layer = 1; layer <= num_layers; ++layer)
      mixing.push_back(layer % every == 0 ? kAttention : kDelta);
    return mixing;
  }
  for (const std::string& type : reader.texts("layer_types")) {
    reader.require("layer_types", type, {"full_attention", "linear_attention"});
    mixing.push_back(type == "full_attention" ? kAttention : kDelta);
  }
  if (mixing.size() != static_cast<size_t>(num_layers))
    reader.refuse("layer_types",
                  fmt::format("names {} layers, num_hidden_layers is {}", mixing.size(), num_layers));
  return mixing;
}

// Every norm of these families but the one in gated DeltaNet is stored as w - 1.
GqaConfig read_gated_attention(ConfigReader& reader, const DecoderConfig& decoder) {
  GqaConfig attention = read_gqa(reader, decoder.hidden, decoder.norm_eps, {});
  attention.head_norm = GqaConfig::HeadNorm::kQueriesAndKeys;
  attention.norm_form = NormForm::kLessOne;
  attention.output_gate = GqaConfig::OutputGate::kSigmoid;
  if (!reader.flag_or("attn_output_gate", true)) reader.refuse("attn_output_gate", "false is not handled");
  return attention;
}

}  // namespace

HybridDecoderConfig read_hybrid_decoder(ConfigReader& reader, std::string_view family) {
  HybridDecoderConfig config{
      .family = family,
      .decoder = read_decoder(reader, {.dense_width = DecoderDefaults::DenseWidth::kMayBeAbsent,
                                       .output_gate = DecoderDefaults::OutputGate::kRead})};
  DecoderConfig& decoder = config.decoder;
  decoder.norm_form = NormForm::kLessOne;
  decoder.no_drafts_because =
      "its sequences keep a recurrent state, which cannot be taken back when drafts are rejected";
  decoder.rows_in_order_because = "its layers with a recurrent state take rows one after the other";
  config.attention = read_gated_attention(reader, decoder);
  // Of M-RoPE's three positions text has one: it is the plain rotation of a part of the head.
  config.rope = read_partial_rope(reader, config.attention.head_dim, 0.25);
  config.delta = read_gated_delta_net(reader, decoder.hidden, decoder.norm_eps);
  config.mixing = read_mixing(reader, decoder.num_layers);
  read_sparse_layers(reader, decoder);
  decoder.moe.shared_expert = MoeConfig::SharedExpert::kGated;
  decoder.moe.shared_width =
      static_cast<int>(reader.integer_or("shared_expert_intermediate_size", 0, 0, 1 << 24));
  const auto num_dense =
      std::count(decoder.layers.begin(), decoder.layers.end(), planning::ModelShape::Ffn::kDense);
  if (num_dense > 0 && decoder.dense_width == 0)
    reader.refuse("intermediate_size", fmt::format("is missing and {} layers have no experts", num_dense));
  if (reader.flag_or("use_sliding_window", false)) reader.refuse("use_sliding_window", "true is not handled");
  return config;
}

Result<std::unique_ptr<const ModelDescription>> describe_hybrid_decoder(ConfigReader& reader,
                                                                        HybridDecoderConfig config) {
  config.attention.rope = config.rope.dim;
  if (const Status status = reader.status(); !status) return status.error();
  return std::unique_ptr<const ModelDescription>(std::make_unique<HybridDescription>(std::move(config)));
}

}  // namespace lockstep::models
