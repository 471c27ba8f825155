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

}  // namespace

Result<std::unique_ptr<Model>> load_model(const Config& config, const WeightSource& source,
                                          const Shards& shards) {
  const auto rope =
      std::make_shared<const RopeTables>(config.rope, config.decoder.context_length, *shards.memory);
  return load_decoder(config.decoder, source, shards,
                      [&](WeightReader& reader, const std::string& prefix, int layer) {
                        return std::make_unique<MlaMixer>(
                            config.mla, rope, static_cast<size_t>(layer),
                            read_attention(reader, prefix + "self_attn.", config.mla, shards.attention));
                      });
}

}  // namespace lockstep::models::deepseek_v3
