#pragma once
// The mixtral family: Mixtral 8x7B, 8x22B. Source of the maths: Mixtral of Experts (2024), section 2, and the
// model's config.json. Attention like Llama's, every layer with experts.
#include "lockstep/models/model.h"

namespace lockstep::models::mixtral {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::mixtral
