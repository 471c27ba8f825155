#include "lockstep/models/deepseek_v3/config.h"
#include "lockstep/models/weights.h"

namespace lockstep::models::deepseek_v3 {
namespace {

using planning::StageKind;

struct Layer {
  TensorView attention_norm, ffn_norm;
  MlaWeights attention;
  FfnWeights dense;  // one of the two
  MoeWeights experts;
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

class DeepseekV3 final : public Model {
 public:
  DeepseekV3(const Config& config, WeightReader& reader, const Shards& shards)
      : config_(config), rope_(config.rope, config.context_length) {
    const int hidden = config.mla.hidden;
    embedding_ = reader.matrix("model.embed_tokens.weight", config.vocab, hidden);
    final_norm_ = reader.vector("model.norm.weight", hidden);
    const char* head = config.head == Config::Head::kOwn ? "lm_head.weight" : "model.embed_tokens.weight";
    head_ = reader.matrix_rows(head, config.vocab, hidden, shards.head.of(config.vocab));
    for (int at = 0; at < config.num_layers; ++at) {
      const std::string prefix = fmt::format("model.layers.{}.", at);
      Layer layer;
      layer.attention_norm = reader.vector(prefix + "input_layernorm.weight", hidden);
      layer.ffn_norm = reader.vector(prefix + "post_attention_layernorm.weight", hidden);
      layer.attention = read_attention(reader, prefix + "self_attn.", config.mla, shards.attention);
      if (config.has_experts(at)) {
        layer.experts = read_experts(reader, prefix + "mlp.", config.moe, shards);
      } else {
        layer.dense = read_ffn(reader, prefix + "mlp.", hidden, config.dense_width, shards.dense);
      }
      layers_.push_back(std::move(layer));
    }
  }

  // What enter() has carried over an edge is the boundary's; the workspace below it is free again.
  TensorView forward(const Batch& batch, const ForwardContext& context) const override {
    collectives::Boundary& boundary = context.boundary;
    context.workspace.reset();
    boundary.begin(batch.plan);
    const std::vector<int32_t> ids = boundary.held(batch.token_ids);
    TensorView x = context.workspace.take({boundary.num_rows(), config_.mla.hidden});
    context.kernels.embed({.token_ids = ids, .table = embedding_, .out = x});
    for (int at = 0; at < config_.num_layers; ++at) {
      const Layer& layer = layers_[at];
      const auto in = boundary.enter({StageKind::kAttention, at}, x, norm(layer.attention_norm));
      context.workspace.reset();
      x = run_mla(config_.mla, layer.attention, rope_, batch, batch.caches[at], in.x, context);
      x = config_.has_experts(at) ? experts(at, x, context) : dense(at, x, context);
    }
    const auto in = boundary.enter({StageKind::kHead, config_.num_layers}, x, norm(final_norm_));
    context.workspace.reset();
    const TensorView logits = context.workspace.take({in.x.rows(), head_.rows()});
    context.kernels.linear({.x = in.x, .w = head_, .out = logits});
    return boundary.enter_sampler(logits, config_.vocab);
  }

 private:
  collectives::NormWeights norm(const TensorView& weight) const { return {weight, config_.norm_eps}; }

  TensorView dense(int at, const TensorView& x, const ForwardContext& context) const {
    const auto in = context.boundary.enter({StageKind::kDense, at}, x, norm(layers_[at].ffn_norm));
    context.workspace.reset();
    return run_ffn(layers_[at].dense, in.x, context);
  }

  TensorView experts(int at, const TensorView& x, const ForwardContext& context) const {
    const auto in = context.boundary.enter({StageKind::kExperts, at}, x, norm(layers_[at].ffn_norm));
    context.workspace.reset();
    return run_moe(config_.moe, layers_[at].experts, in, context);
  }

  const Config config_;
  const RopeTables rope_;
  TensorView embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
};

}  // namespace

Result<std::unique_ptr<Model>> load_model(const Config& config, const Checkpoint& checkpoint,
                                          const Shards& shards) {
  WeightReader reader(checkpoint);
  auto model = std::make_unique<DeepseekV3>(config, reader, shards);
  if (const Status status = reader.status(); !status) return status.error();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace lockstep::models::deepseek_v3
