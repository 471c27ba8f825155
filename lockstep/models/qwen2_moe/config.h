#pragma once
// The qwen2_moe family: Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B. Source of the maths: Qwen2 Technical Report
// (2024), section 2.2, and the model's config.json. Biases on queries, keys and values, and a gated shared
// expert.
#include "lockstep/models/model.h"

namespace lockstep::models::qwen2_moe {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::qwen2_moe
