#include "lockstep/models/deepseek_v3/config.h"

#include <cmath>

#include "lockstep/models/config_reader.h"

namespace lockstep::models::deepseek_v3 {
namespace {

constexpr int64_t kMost = 1 << 24;

MlaConfig read_mla(ConfigReader& reader, const RopeConfig& rope) {
  MlaConfig mla;
  mla.hidden = static_cast<int>(reader.integer("hidden_size", 1, kMost));
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

MoeConfig read_moe(ConfigReader& reader, int hidden) {
  MoeConfig moe;
  moe.hidden = hidden;
  moe.num_experts = static_cast<int>(reader.integer("n_routed_experts", 1, 1 << 16));
  moe.top_k = static_cast<int>(reader.integer("num_experts_per_tok", 1, moe.num_experts));
  moe.expert_width = static_cast<int>(reader.integer("moe_intermediate_size", 1, kMost));
  moe.shared_width = moe.expert_width * static_cast<int>(reader.integer_or("n_shared_experts", 0, 0, 64));
  moe.num_groups = static_cast<int>(reader.integer_or("n_group", 1, 1, moe.num_experts));
  moe.top_groups = static_cast<int>(reader.integer_or("topk_group", 1, 1, moe.num_groups));
  if (moe.num_experts % moe.num_groups != 0)
    reader.refuse("n_group",
                  fmt::format("{} does not divide n_routed_experts {}", moe.num_groups, moe.num_experts));
  if (moe.top_k > moe.num_experts / moe.num_groups * moe.top_groups)
    reader.refuse("num_experts_per_tok",
                  fmt::format("{} is more than the {} chosen groups hold", moe.top_k, moe.top_groups));
  moe.weights = reader.flag_or("norm_topk_prob", true) ? kernels::RouteArgs::Weights::kNormalised
                                                       : kernels::RouteArgs::Weights::kAsScored;
  moe.scale = static_cast<float>(reader.number_or("routed_scaling_factor", 1.0, 0, 1e6));
  return moe;
}

void refuse_other_maths(ConfigReader& reader) {
  reader.require("hidden_act", reader.text_or("hidden_act", "silu"), {"silu"});
  reader.require("scoring_func", reader.text_or("scoring_func", "sigmoid"), {"sigmoid"});
  reader.require("topk_method", reader.text_or("topk_method", "noaux_tc"), {"noaux_tc"});
  if (reader.flag_or("attention_bias", false)) reader.refuse("attention_bias", "true is not handled");
  if (!reader.flag_or("rope_interleave", true)) reader.refuse("rope_interleave", "false is not handled");
  if (reader.object("quantization_config") != nullptr)
    reader.refuse("quantization_config",
                  "is there: quantized weights are not handled, use a bf16 checkpoint");
}

class Description final : public ModelDescription {
 public:
  explicit Description(const Config& config) : config_(config) {}
  std::string_view family() const override { return "deepseek_v3"; }
  int context_length() const override { return config_.context_length; }

  planning::ModelShape shape() const override {
    const MlaConfig& mla = config_.mla;
    const double query = mla.q_lora > 0 ? 1.0 * mla.hidden * mla.q_lora +
                                              1.0 * mla.q_lora * mla.num_heads * (mla.nope + mla.rope)
                                        : 1.0 * mla.hidden * mla.num_heads * (mla.nope + mla.rope);
    planning::ModelShape shape{.hidden = mla.hidden,
                               .vocab = config_.vocab,
                               .num_heads = mla.num_heads,
                               .dense_inter = config_.dense_width,
                               .num_experts = config_.moe.num_experts,
                               .top_k = config_.moe.top_k,
                               .expert_inter = config_.moe.expert_width,
                               .shared_inter = config_.moe.shared_width,
                               .attention_params = query + 1.0 * mla.hidden * mla.cache_width() +
                                                   1.0 * mla.latent * mla.num_heads * (mla.nope + mla.value) +
                                                   1.0 * mla.hidden * mla.num_heads * mla.value};
    for (int layer = 0; layer < config_.num_layers; ++layer)
      shape.layers.push_back(config_.has_experts(layer) ? planning::ModelShape::Ffn::kExperts
                                                        : planning::ModelShape::Ffn::kDense);
    return shape;
  }

  std::vector<CacheNeed> cache_needs() const override {
    std::vector<CacheNeed> needs;
    for (int layer = 0; layer < config_.num_layers; ++layer)
      needs.push_back({.layer = layer, .what = "latent", .values_per_token = config_.mla.cache_width()});
    return needs;
  }

  Result<std::unique_ptr<Model>> load(const Checkpoint& checkpoint, const Shards& shards) const override {
    return load_model(config_, checkpoint, shards);
  }

 private:
  const Config config_;
};

}  // namespace

Result<Config> read_config(const Json& json) {
  ConfigReader reader(json);
  Config config;
  config.num_layers = static_cast<int>(reader.integer("num_hidden_layers", 1, 1 << 12));
  config.vocab = static_cast<int>(reader.integer("vocab_size", 1, kMost));
  config.context_length = static_cast<int>(reader.integer("max_position_embeddings", 1, kMost));
  config.first_dense = static_cast<int>(reader.integer_or("first_k_dense_replace", 0, 0, config.num_layers));
  config.moe_every = static_cast<int>(reader.integer_or("moe_layer_freq", 1, 1, 1 << 12));
  config.num_mtp_layers = static_cast<int>(reader.integer_or("num_nextn_predict_layers", 0, 0, 64));
  config.dense_width = static_cast<int>(reader.integer("intermediate_size", 1, kMost));
  config.norm_eps = static_cast<float>(reader.number_or("rms_norm_eps", 1e-6, 0, 1));
  config.head =
      reader.flag_or("tie_word_embeddings", false) ? Config::Head::kTiedToEmbedding : Config::Head::kOwn;
  const auto rope_dim = static_cast<int>(reader.integer("qk_rope_head_dim", 2, 1 << 16));
  if (rope_dim % 2 != 0) reader.refuse("qk_rope_head_dim", fmt::format("{} is odd", rope_dim));
  config.rope = read_rope(reader, rope_dim);
  config.mla = read_mla(reader, config.rope);
  config.moe = read_moe(reader, config.mla.hidden);
  refuse_other_maths(reader);
  if (const Status status = reader.status(); !status) return status.error();
  return config;
}

std::unique_ptr<const ModelDescription> make_description(const Config& config) {
  return std::make_unique<Description>(config);
}

}  // namespace lockstep::models::deepseek_v3
