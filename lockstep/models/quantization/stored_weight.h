#pragma once
// How weights lie in published files, told apart by the tensors that are there:
//   X.weight f32, bf16, f16                            plain
//   X.weight e4m3 + weight_scale_inv or weight_scale   FP8: blocks, channels or the whole tensor
//   X.weight i8 + weight_scale                         int8 (compressed-tensors)
//   X.weight u8 + weight_scale + weight_scale_2        NVFP4 (ModelOpt)
//   X.weight_packed u8 + weight_scale                  NVFP4 (+ weight_global_scale) or MXFP4
//   (compressed-tensors) X.weight_packed i32 + weight_scale                 int4, int8 (compressed-tensors)
//   X.qweight + qzeros + scales                        GPTQ or AWQ, repacked
//   X_blocks + X_scales                                MXFP4 of experts that lie together (gpt-oss)
// Only WeightReader calls this.
#include <string>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/models/quantization/quant_config.h"
#include "lockstep/tensors/weight_view.h"

namespace lockstep::models {

class WeightReader;

struct StoredWeight {
  std::string name;  // "….up_proj.weight"
  int64_t rows = 0, cols = 0;
  Range keep_rows, keep_cols;
};
// An empty view and a problem of the reader where something does not fit.
WeightView read_stored_weight(WeightReader& reader, const QuantConfig& config, const StoredWeight& stored);

struct StoredWeights {
  std::string name;  // "….experts.down_proj"
  int64_t count = 0, rows = 0, cols = 0;
  Range keep;
};
std::vector<WeightView> read_stored_weights(WeightReader& reader, const QuantConfig& config,
                                            const StoredWeights& stored);

}  // namespace lockstep::models
