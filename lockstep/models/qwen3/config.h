#pragma once
// The qwen3 family: the dense Qwen3 models. Source of the maths: Qwen3 Technical Report (2025), section 2,
// and the model's config.json.
#include "lockstep/models/model.h"

namespace lockstep::models::qwen3 {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::qwen3
