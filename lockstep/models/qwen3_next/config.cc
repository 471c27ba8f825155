#include "lockstep/models/qwen3_next/config.h"

#include "lockstep/models/hybrid_decoder.h"

namespace lockstep::models::qwen3_next {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  HybridDecoderConfig config = read_hybrid_decoder(reader, "qwen3_next");
  config.delta.rows = GatedDeltaNetConfig::Rows::kByKeyHead;
  if (!reader.has("norm_topk_prob")) config.decoder.moe.weights = kernels::RouteArgs::Weights::kNormalised;
  return describe_hybrid_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::qwen3_next
