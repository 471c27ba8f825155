#pragma once
// The quantization_config of a checkpoint that quantize writes. Private to quantize.
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensors/weight_encode.h"

namespace lockstep::runtime {

// ignored: modules with a matrix that stays as it is.
Json quantization_config(const WeightEncoding& encoding, const std::vector<std::string>& ignored);
// Of MXFP4 experts that lie together, as gpt-oss is published.
Json together_config(const std::vector<std::string>& ignored);

}  // namespace lockstep::runtime
