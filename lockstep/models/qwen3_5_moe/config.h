#pragma once
// The qwen3_5_moe family: Qwen3.5-35B-A3B, Qwen3.5-397B-A17B and the like, text only. Source of the maths:
// the model's published config.json and modeling code in transformers.
#include "lockstep/models/model.h"

namespace lockstep::models::qwen3_5_moe {

// Of the text part alone, or of the whole model, which has it in text_config.
Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::qwen3_5_moe
