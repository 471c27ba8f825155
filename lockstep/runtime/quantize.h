#pragma once
// A checkpoint of any family that runs, written again with its linear layers quantized, in a published
// layout. Weights pass one by one, so that memory does not grow with the model. For `lockstep quantize`.
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/tensors/weight_encode.h"

namespace lockstep::runtime {

struct QuantizeOptions {
  std::string model_directory;
  std::string output_directory;  // must not be there
  QuantFormat format = QuantFormat::kFp8;
  int64_t group_size = 0;  // kInt4; 0: the largest of 128, 64 and 32 that divides the inputs of all weights
};

struct QuantizedWeight {
  std::string module;
  int64_t rows = 0, cols = 0;
  double relative_error = 0;  // root of (sum of squared differences / sum of squares)
  double largest_error = 0;   // largest difference of a number
};

struct QuantizeReport {
  std::vector<QuantizedWeight> weights;
  std::vector<std::string> left_alone;  // weights that have no place in the layout
  std::vector<std::string> left_out;    // of a quantized source: what the model does not run
  int64_t num_copied = 0;               // tensors
  uint64_t bytes_read = 0, bytes_written = 0;
};

struct QuantizeProgress {
  size_t num_done = 0, num_all = 0;  // tensors and weights
  uint64_t bytes_written = 0, bytes_all = 0;
};
// False stops; nothing is left behind then.
using QuantizeWatch = std::function<bool(const QuantizeProgress&)>;

// The output appears whole or not at all. kUnavailable when it was stopped.
Result<QuantizeReport> quantize_checkpoint(const QuantizeOptions& options, const QuantizeWatch& watch);

}  // namespace lockstep::runtime
