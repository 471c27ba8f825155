#pragma once
// The llama family: Llama 2, 3, 3.1 … and what is saved as LlamaForCausalLM. Dense. Source of the maths: The
// Llama 3 Herd of Models (2024), section 3.2, and the model's config.json.
#include "lockstep/models/model.h"

namespace lockstep::models::llama {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::llama
