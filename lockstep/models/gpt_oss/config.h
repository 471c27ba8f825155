#pragma once
// The gpt_oss family: gpt-oss-20b, gpt-oss-120b. Source of the maths: gpt-oss-120b & gpt-oss-20b Model Card
// (2025), section 2, and the model's config.json. Attention with sinks and biases, a window in every other
// layer; experts with biases and a clamped gate.
#include "lockstep/models/model.h"

namespace lockstep::models::gpt_oss {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& config);

}  // namespace lockstep::models::gpt_oss
