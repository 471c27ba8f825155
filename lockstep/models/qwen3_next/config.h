#pragma once
// The qwen3_next family: Qwen3-Next-80B-A3B, Qwen3-Coder-Next. Source of the maths: the model's published
// config.json and modeling code in transformers; Yang, Kautz and Hatamizadeh 2024 for gated DeltaNet.
#include "lockstep/models/model.h"

namespace lockstep::models::qwen3_next {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::qwen3_next
