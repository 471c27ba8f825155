#include "lockstep/models/deepseek_v2/config.h"

#include "lockstep/models/mla_decoder.h"

namespace lockstep::models::deepseek_v2 {
namespace {

MoeConfig read_moe_config(ConfigReader& reader, int hidden) {
  using kernels::RouteArgs;
  MoeConfig moe{.hidden = hidden,
                .group_score = RouteArgs::GroupScore::kBest,
                .weights = RouteArgs::Weights::kAsScored};
  reader.require("scoring_func", reader.text_or("scoring_func", "softmax"), {"softmax"});
  const std::string method = reader.text_or("topk_method", "greedy");
  reader.require("topk_method", method, {"greedy", "group_limited_greedy"});
  moe.num_experts = static_cast<int>(reader.integer("n_routed_experts", 1, 1 << 16));
  moe.top_k = static_cast<int>(reader.integer("num_experts_per_tok", 1, moe.num_experts));
  moe.expert_width = static_cast<int>(reader.integer("moe_intermediate_size", 1, 1 << 24));
  moe.shared_width = moe.expert_width * static_cast<int>(reader.integer_or("n_shared_experts", 0, 0, 64));
  if (method == "group_limited_greedy") read_expert_groups(reader, moe);
  moe.scale = static_cast<float>(reader.number_or("routed_scaling_factor", 1.0, 0, 1e6));
  // DeepSeek's own code then leaves out the scaling factor and others leave out the division.
  if (reader.flag_or("norm_topk_prob", false)) reader.refuse("norm_topk_prob", "true is not handled");
  return moe;
}

}  // namespace

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  MlaDecoderConfig config = read_mla_decoder(reader, "deepseek_v2");
  config.decoder.moe = read_moe_config(reader, config.decoder.hidden);
  return describe_mla_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::deepseek_v2
