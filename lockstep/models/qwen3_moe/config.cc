#include "lockstep/models/qwen3_moe/config.h"

#include "lockstep/models/gqa_decoder.h"

namespace lockstep::models::qwen3_moe {
namespace {

MoeConfig read_softmax_moe(ConfigReader& reader, int hidden) {
  MoeConfig moe{.hidden = hidden, .scoring = kernels::Scoring::kSoftmax};
  const char* count = reader.has("num_experts") ? "num_experts" : "num_local_experts";
  moe.num_experts = static_cast<int>(reader.integer(count, 1, 1 << 16));
  moe.top_k = static_cast<int>(reader.integer("num_experts_per_tok", 1, moe.num_experts));
  moe.expert_width = static_cast<int>(reader.integer("moe_intermediate_size", 1, 1 << 24));
  moe.weights = reader.flag_or("norm_topk_prob", false) ? kernels::RouteArgs::Weights::kNormalised
                                                        : kernels::RouteArgs::Weights::kAsScored;
  return moe;
}

// Every decoder_sparse_step-th layer has experts, but for those that mlp_only_layers lists.
void read_expert_layers(ConfigReader& reader, DecoderConfig& decoder) {
  decoder.moe = read_softmax_moe(reader, decoder.hidden);
  const int64_t step = reader.integer_or("decoder_sparse_step", 1, 1, 1 << 12);
  for (int64_t layer = step - 1; layer < decoder.num_layers; layer += step)
    decoder.layers[static_cast<size_t>(layer)] = planning::ModelShape::Ffn::kExperts;
  for (const int64_t layer : reader.integers("mlp_only_layers")) {
    if (layer < 0 || layer >= decoder.num_layers)
      reader.refuse("mlp_only_layers", fmt::format("names layer {} of {}", layer, decoder.num_layers));
    else
      decoder.layers[static_cast<size_t>(layer)] = planning::ModelShape::Ffn::kDense;
  }
}

}  // namespace

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  GqaDecoderConfig config{.family = "qwen3_moe", .decoder = read_decoder(reader)};
  config.attention = read_gqa(reader, config.decoder.hidden, config.decoder.norm_eps, {});
  config.attention.head_norm = GqaConfig::HeadNorm::kQueriesAndKeys;
  config.rope = read_whole_rope(reader, config.attention.head_dim);
  read_expert_layers(reader, config.decoder);
  refuse_sliding_window(reader);
  return describe_gqa_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::qwen3_moe
