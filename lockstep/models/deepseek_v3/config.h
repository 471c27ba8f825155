#pragma once
// The deepseek_v3 family: DeepSeek-V3, R1, V3.1 and what is shaped like them. Source of the maths:
// DeepSeek-V3 Technical Report (2024), sections 2.1 and 2.2, and the model's config.json.
#include "lockstep/models/blocks/mla.h"
#include "lockstep/models/blocks/moe_ffn.h"
#include "lockstep/models/model.h"

namespace lockstep::models::deepseek_v3 {

struct Config {
  int num_layers = 0, vocab = 0, context_length = 0;
  int first_dense = 0,
      moe_every = 1;       // layers before first_dense are dense; after it every moe_every-th has experts
  int num_mtp_layers = 0;  // layers num_layers … in the file: recognised, not run
  int dense_width = 0;
  float norm_eps = 1e-6f;
  enum class Head : uint8_t { kOwn, kTiedToEmbedding } head = Head::kOwn;
  MlaConfig mla;
  MoeConfig moe;
  RopeConfig rope;
  bool has_experts(int layer) const { return layer >= first_dense && layer % moe_every == 0; }
};

Result<Config> read_config(const Json& config);
std::unique_ptr<const ModelDescription> make_description(const Config& config);
Result<std::unique_ptr<Model>> load_model(const Config& config, const Checkpoint& checkpoint,
                                          const Shards& shards);

}  // namespace lockstep::models::deepseek_v3
