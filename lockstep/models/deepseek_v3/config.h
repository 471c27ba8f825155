#pragma once
// The deepseek_v3 family: DeepSeek-V3, R1, V3.1 and what is shaped like them. Source of the maths:
// DeepSeek-V3 Technical Report (2024), sections 2.1 and 2.2, and the model's config.json.
#include "lockstep/models/model.h"

namespace lockstep::models::deepseek_v3 {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::deepseek_v3
