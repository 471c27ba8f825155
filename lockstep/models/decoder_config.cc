#include "lockstep/models/decoder_config.h"

#include <limits>
#include <utility>

namespace lockstep::models {

namespace {

// Keys of other families that a checkpoint of these may carry, with the value at which they change nothing.
void refuse_other_maths(ConfigReader& reader) {
  constexpr std::pair<const char*, double> kNeutral[] = {{"attn_logit_softcapping", 0},
                                                         {"final_logit_softcapping", 0},
                                                         {"clip_qkv", 0},
                                                         {"logit_scale", 1},
                                                         {"logits_scaling", 1},
                                                         {"embedding_multiplier", 1},
                                                         {"residual_multiplier", 1},
                                                         {"scale_emb", 1},
                                                         {"num_zero_experts", 0}};
  constexpr double kMost = std::numeric_limits<double>::max();
  for (const auto& [key, neutral] : kNeutral)
    if (const double value = reader.number_or(key, neutral, -kMost, kMost); value != neutral)
      reader.refuse(key, fmt::format("{} is not handled", value));
  for (const char* key : {"mlp_bias", "use_parallel_residual", "is_encoder_decoder"})
    if (reader.flag_or(key, false)) reader.refuse(key, "true is not handled");
}

}  // namespace

DecoderConfig read_decoder(ConfigReader& reader, const DecoderDefaults& defaults) {
  constexpr int64_t kMost = 1 << 24;
  DecoderConfig config;
  config.num_layers = static_cast<int>(reader.integer("num_hidden_layers", 1, 1 << 12));
  config.hidden = static_cast<int>(reader.integer("hidden_size", 1, kMost));
  config.vocab = static_cast<int>(reader.integer("vocab_size", 1, kMost));
  config.context_length = static_cast<int>(reader.integer("max_position_embeddings", 1, kMost));
  config.dense_width = static_cast<int>(defaults.dense_width == DecoderDefaults::DenseWidth::kRequired
                                            ? reader.integer("intermediate_size", 1, kMost)
                                            : reader.integer_or("intermediate_size", 0, 1, kMost));
  config.norm_eps = static_cast<float>(reader.number_or("rms_norm_eps", defaults.norm_eps, 0, 1));
  config.head = reader.flag_or("tie_word_embeddings", false) ? DecoderConfig::Head::kTiedToEmbedding
                                                             : DecoderConfig::Head::kOwn;
  config.layers.assign(static_cast<size_t>(config.num_layers), planning::ModelShape::Ffn::kDense);
  reader.require("hidden_act", reader.text_or("hidden_act", "silu"), {"silu"});
  refuse_other_maths(reader);
  if (defaults.output_gate == DecoderDefaults::OutputGate::kNone && reader.flag_or("attn_output_gate", false))
    reader.refuse("attn_output_gate", "true is not handled");
  config.num_mtp_layers = static_cast<int>(reader.integer_or("num_nextn_predict_layers", 0, 0, 64));
  config.quantization = read_quantization(reader);
  return config;
}

void read_sparse_layers(ConfigReader& reader, DecoderConfig& config) {
  config.moe = read_softmax_moe(reader, config.hidden);
  const int64_t step = reader.integer_or("decoder_sparse_step", 1, 1, 1 << 12);
  for (int64_t layer = step - 1; layer < config.num_layers; layer += step)
    config.layers[static_cast<size_t>(layer)] = planning::ModelShape::Ffn::kExperts;
  for (const int64_t layer : reader.integers("mlp_only_layers")) {
    if (layer < 0 || layer >= config.num_layers)
      reader.refuse("mlp_only_layers", fmt::format("names layer {} of {}", layer, config.num_layers));
    else
      config.layers[static_cast<size_t>(layer)] = planning::ModelShape::Ffn::kDense;
  }
}

planning::ModelShape shape_of(const DecoderConfig& config, int num_heads, double num_attention_params) {
  std::vector<planning::ModelShape::Ffn> draft_layers;
  if (config.num_mtp_layers > 0) draft_layers.push_back(config.mtp_ffn);
  return {.hidden = config.hidden,
          .vocab = config.vocab,
          .num_heads = num_heads,
          .layers = config.layers,
          .dense_inter = config.dense_width,
          .num_experts = config.moe.num_experts,
          .top_k = config.moe.top_k,
          .expert_inter = config.moe.expert_width,
          .shared_inter = config.moe.shared_width,
          .attention_params = num_attention_params,
          .bytes_per_weight = bytes_per_weight(config.quantization),
          .quant_block = block_width(config.quantization),
          .draft_layers = std::move(draft_layers),
          .latent_width = config.latent_width,
          .latent_params = config.latent_params,
          .no_drafts_because = config.no_drafts_because,
          .rows_in_order_because = config.rows_in_order_because};
}

}  // namespace lockstep::models
