#pragma once
// Integer codes that lie in the file across the direction in which the kernels read: GPTQ packs inputs and
// AWQ outputs into words, both transposed. A rank copies the codes of its part, with the whole groups that it
// overlaps, into the order of weight_view.h.
#include <optional>
#include <string>

#include "lockstep/base/split.h"
#include "lockstep/models/quantization/quant_config.h"
#include "lockstep/tensors/weight_view.h"

namespace lockstep::models {

class WeightReader;

struct IntegerWords {
  std::string module;
  int64_t rows = 0, cols = 0;  // outputs, inputs
  Range keep_rows, keep_cols;
};

// Blocks of `block` that cover `total`; the last may be cut.
constexpr int64_t blocks_of(int64_t total, int64_t block) { return (total + block - 1) / block; }

// The part that is kept; an empty view and problems of the reader where something does not fit. Words that
// are only inspected are not copied.
WeightView repack_gptq(WeightReader& reader, const QuantConfig& config, const IntegerWords& words);
WeightView repack_awq(WeightReader& reader, const QuantConfig& config, const IntegerWords& words);

// Zero points of [rows, groups], packed along the rows into words [rows * bits / 32, groups].
const uint8_t* unpack_zeros_along_rows(WeightReader& reader, const TensorView& words, int64_t rows, int bits);

// The group of every input; null when it is input / group_cols as usual, nothing with a problem of the
// reader.
std::optional<const int32_t*> read_group_index(WeightReader& reader, const std::string& name, int64_t cols,
                                               int64_t num_groups, int64_t group_cols);

}  // namespace lockstep::models
