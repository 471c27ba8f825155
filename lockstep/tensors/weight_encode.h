#pragma once
// Plain weights to codes, in the layouts in which checkpoints are published: which tensors a weight becomes
// and what is in them. No calibration: every factor follows from the weights it is for.
#include <string>
#include <vector>

#include "lockstep/tensors/weight_view.h"

namespace lockstep {

enum class QuantFormat : uint8_t {
  kFp8,    // E4M3 in blocks of 128 x 128: weight, weight_scale_inv (f32)
  kNvfp4,  // E2M1 in blocks of 16, E4M3 factors: weight_packed, weight_scale, weight_global_scale
  kMxfp4,  // E2M1 in blocks of 32, E8M0 factors: weight_packed, weight_scale
  kInt8,   // a factor for each row: weight, weight_scale (bf16)
  kInt4,   // a factor for each group of inputs: weight_packed, weight_scale (bf16)
};

struct WeightEncoding {
  QuantFormat format = QuantFormat::kFp8;
  int64_t group_size = 128;  // kInt4: inputs
  // Whether the layout has a place for a weight with so many inputs.
  bool fits(int64_t cols) const;
};

struct EncodedTensor {
  std::string suffix;  // of the module's name: ".weight_scale"
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// The tensors of a weight [rows, cols], sized and all zero.
std::vector<EncodedTensor> encoded_tensors(const WeightEncoding& encoding, int64_t rows, int64_t cols);

// Fills them. numbers: [rows, cols] f32, contiguous and finite.
std::vector<EncodedTensor> encode_weight(const WeightEncoding& encoding, const float* numbers, int64_t rows,
                                         int64_t cols);

// What they mean, as long as they live.
WeightView view_of(const WeightEncoding& encoding, const std::vector<EncodedTensor>& tensors, int64_t rows,
                   int64_t cols);

}  // namespace lockstep
