#pragma once
// The deepseek_v32 family: DeepSeek-V3.2 and V3.2-Exp, with dense attention. Source of the maths:
// DeepSeek-V3.2 (2025), section 2, and the model's config.json. The model is V3 with an indexer that chooses
// index_topk tokens for every row to attend to; here a row attends to all, which is the same as long as it
// sees no more than those.
#include "lockstep/models/model.h"

namespace lockstep::models::deepseek_v32 {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::deepseek_v32
