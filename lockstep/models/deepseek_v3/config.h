#pragma once
// The deepseek_v3 family: DeepSeek-V3, R1, V3.1 and what is shaped like them. Source of the maths:
// DeepSeek-V3 Technical Report (2024), sections 2.1 and 2.2, and the model's config.json.
#include "lockstep/models/blocks/mla.h"
#include "lockstep/models/decoder_config.h"
#include "lockstep/models/model.h"

namespace lockstep::models::deepseek_v3 {

struct Config {
  DecoderConfig decoder;  // layers before first_k_dense_replace are dense
  MlaConfig mla;
  RopeConfig rope;
};

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);
Result<std::unique_ptr<Model>> load_model(const Config& config, const WeightSource& source,
                                          const Shards& shards);

}  // namespace lockstep::models::deepseek_v3
