#include "lockstep/models/decoder.h"
#include "lockstep/models/deepseek_v3/config.h"
#include "lockstep/models/weights.h"

namespace lockstep::models::deepseek_v3 {
namespace {

// Attention of one layer. All layers share the config and the rope tables.
class MlaMixer final : public Mixer {
 public:
  MlaMixer(const MlaConfig& config, std::shared_ptr<const RopeTables> rope, size_t cache_idx,
           MlaWeights weights)
      : config_(config), rope_(std::move(rope)), cache_idx_(cache_idx), weights_(weights) {}
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
    weights.q_a = reader.matrix(prefix + "q_a_proj.weight", config.q_lora, config.hidden);
    weights.q_a_norm = reader.vector(prefix + "q_a_layernorm.weight", config.q_lora);
    weights.q_b = reader.matrix_rows(prefix + "q_b_proj.weight", config.num_heads * query, config.q_lora,
                                     per_head(query));
  } else {
    weights.q_b = reader.matrix_rows(prefix + "q_proj.weight", config.num_heads * query, config.hidden,
                                     per_head(query));
  }
  weights.kv_a = reader.matrix(prefix + "kv_a_proj_with_mqa.weight", config.cache_width(), config.hidden);
  weights.kv_a_norm = reader.vector(prefix + "kv_a_layernorm.weight", config.latent);
  weights.kv_b = reader.matrix_rows(prefix + "kv_b_proj.weight", config.num_heads * key_value, config.latent,
                                    per_head(key_value));
  weights.o = reader.matrix_cols(prefix + "o_proj.weight", config.hidden, config.num_heads * config.value,
                                 per_head(config.value));
  return weights;
}

MoeWeights read_experts(WeightReader& reader, const std::string& prefix, const MoeConfig& config,
                        const Shards& shards) {
  MoeWeights weights;
  weights.router = reader.matrix(prefix + "gate.weight", config.num_experts, config.hidden);
  weights.router_bias = reader.vector(prefix + "gate.e_score_correction_bias", config.num_experts);
  const Range local = shards.expert_parallel.of(config.num_experts);
  weights.first_expert = local.begin;
  for (int64_t expert = local.begin; expert < local.end; ++expert) {
    const FfnWeights one = read_ffn(reader, fmt::format("{}experts.{}.", prefix, expert), config.hidden,
                                    config.expert_width, shards.expert_tp);
    weights.gate.push_back(one.gate);
    weights.up.push_back(one.up);
    weights.down.push_back(one.down);
  }
  if (config.shared_width > 0)
    weights.shared =
        read_ffn(reader, prefix + "shared_experts.", config.hidden, config.shared_width, shards.shared);
  return weights;
}

DecoderLayer read_layer(WeightReader& reader, const Config& config, const Shards& shards, int at,
                        const std::shared_ptr<const RopeTables>& rope) {
  using enum planning::ModelShape::Ffn;
  const std::string prefix = fmt::format("model.layers.{}.", at);
  const int hidden = config.mla.hidden;
  DecoderLayer layer;
  layer.mixer_norm = reader.vector(prefix + "input_layernorm.weight", hidden);
  layer.ffn_norm = reader.vector(prefix + "post_attention_layernorm.weight", hidden);
  layer.mixer =
      std::make_unique<MlaMixer>(config.mla, rope, static_cast<size_t>(at),
                                 read_attention(reader, prefix + "self_attn.", config.mla, shards.attention));
  layer.ffn = config.has_experts(at) ? kExperts : kDense;
  if (layer.ffn == kExperts) {
    layer.experts = read_experts(reader, prefix + "mlp.", config.moe, shards);
  } else {
    layer.dense = read_ffn(reader, prefix + "mlp.", hidden, config.dense_width, shards.dense);
  }
  return layer;
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const Config& config, const Checkpoint& checkpoint,
                                          const Shards& shards) {
  WeightReader reader(checkpoint);
  const int hidden = config.mla.hidden;
  DecoderParts parts{.hidden = hidden, .vocab = config.vocab, .norm_eps = config.norm_eps, .moe = config.moe};
  parts.embedding = reader.matrix("model.embed_tokens.weight", config.vocab, hidden);
  parts.final_norm = reader.vector("model.norm.weight", hidden);
  const char* head = config.head == Config::Head::kOwn ? "lm_head.weight" : "model.embed_tokens.weight";
  parts.head = reader.matrix_rows(head, config.vocab, hidden, shards.head.of(config.vocab));
  const auto rope = std::make_shared<const RopeTables>(config.rope, config.context_length);
  for (int at = 0; at < config.num_layers; ++at)
    parts.layers.push_back(read_layer(reader, config, shards, at, rope));
  if (const Status status = reader.status(); !status) return status.error();
  return make_decoder(std::move(parts));
}

}  // namespace lockstep::models::deepseek_v3
