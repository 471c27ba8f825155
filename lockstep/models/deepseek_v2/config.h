#pragma once
// The deepseek_v2 family: DeepSeek-V2, V2-Lite, Coder-V2. Source of the maths: DeepSeek-V2 (2024), section 2,
// and the model's config.json. Attention like V3's, a softmax router whose weights are not normalised.
#include "lockstep/models/model.h"

namespace lockstep::models::deepseek_v2 {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::deepseek_v2
