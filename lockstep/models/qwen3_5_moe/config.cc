#include "lockstep/models/qwen3_5_moe/config.h"

#include "lockstep/models/hybrid_decoder.h"

namespace lockstep::models::qwen3_5_moe {
namespace {

// The object that describes the text part, with what the whole model says of all its parts.
Result<Json> text_part(const Json& json) {
  const auto text = json.find("text_config");
  if (text == json.end()) return json;
  if (!text->is_object())
    return invalid_argument("text_config", "config.json: text_config is {}, not an object", to_text(*text));
  Json part = *text;
  for (const char* key : {"tie_word_embeddings", "quantization_config"})
    if (const auto whole = json.find(key); whole != json.end() && !part.contains(key)) part[key] = *whole;
  return part;
}

}  // namespace

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  const auto text = text_part(json);
  if (!text) return text.error();
  ConfigReader reader(*text);
  HybridDecoderConfig config = read_hybrid_decoder(reader, "qwen3_5_moe");
  config.delta.rows = GatedDeltaNetConfig::Rows::kByKind;
  // Most of these files have no key for it, and mean this.
  if (!reader.has("norm_topk_prob")) config.decoder.moe.weights = kernels::RouteArgs::Weights::kNormalised;
  return describe_hybrid_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::qwen3_5_moe
