#pragma once
// The glm4_moe family: GLM-4.5, GLM-4.5-Air, GLM-4.6. Source of the maths: GLM-4.5 (2025), section 2.1, and
// the model's config.json. Attention like Qwen3's but with half of each head rotated, experts like
// DeepSeek-V3's.
#include "lockstep/models/model.h"

namespace lockstep::models::glm4_moe {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::glm4_moe
