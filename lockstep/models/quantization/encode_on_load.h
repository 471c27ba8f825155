#pragma once
// Plain weights quantized while they are read (--quantization). A rank works out the whole weight, so that
// its factors do not depend on the split, and keeps its part of it.
#include <string>

#include "lockstep/base/split.h"
#include "lockstep/tensors/weight_encode.h"

namespace lockstep::models {

class WeightReader;

// The encoding for a weight with so many inputs: int4 takes the largest group of 128, 64 and 32 that divides
// them.
WeightEncoding encoding_for(QuantFormat format, int64_t cols);

// The part of `whole`, encoded in the reader's memory. A weight that has no place in the format stays plain.
WeightView encode_on_load(WeightReader& reader, QuantFormat format, const std::string& name,
                          const WeightView& whole, Range keep_rows, Range keep_cols);

}  // namespace lockstep::models
