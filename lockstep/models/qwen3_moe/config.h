#pragma once
// The qwen3_moe family: Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder. Source of the maths: Qwen3 Technical
// Report (2025), section 2, and the model's config.json.
#include "lockstep/models/model.h"

namespace lockstep::models::qwen3_moe {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::qwen3_moe
