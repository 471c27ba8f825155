#pragma once
// Weight views of one rank, sliced where the file is mapped. Copied are only the small vectors that are kept
// in another form than the file's. Problems are collected over the whole model and reported at once.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/tensors/safetensors.h"

namespace lockstep::models {

// How the weight w of a norm lies in the file.
enum class NormForm : uint8_t {
  kWhole,    // w
  kLessOne,  // w - 1, "zero-centred" (Qwen3-Next)
};

// Numbers of one rank's weights that stand in no file. Moving it moves no number.
using MadeWeights = std::vector<std::vector<float>>;

class WeightReader {
 public:
  explicit WeightReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // [rows, cols] f32 or bf16, then the named slice of rows or of columns.
  TensorView matrix(const std::string& name, int64_t rows, int64_t cols);
  TensorView matrix_rows(const std::string& name, int64_t rows, int64_t cols, Range keep);
  TensorView matrix_cols(const std::string& name, int64_t rows, int64_t cols, Range keep);
  TensorView vector(const std::string& name, int64_t size);
  TensorView vector_part(const std::string& name, int64_t size, Range keep);
  TensorView f32_vector(const std::string& name, int64_t size);  // what may not be rounded
  // [size]; made in f32 where the file holds w - 1: a sum in bf16 would round.
  TensorView norm(const std::string& name, int64_t size, NormForm form);
  // A causal convolution by channel, stored [channels, 1, taps], made [taps, kept channels] f32: the channels
  // of all the ranges, one after the other.
  TensorView taps(const std::string& name, int64_t channels, int64_t taps, const std::vector<Range>& keep);
  // The matrices [rows, cols] with numbers in `keep` of a tensor [count, rows, cols]; none when it is not
  // there.
  std::vector<TensorView> matrices(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                                   Range keep);

  bool has(const std::string& name) const { return checkpoint_.has(name); }

  // What the views of norm() and taps() may point into; to be kept as long as they are used.
  MadeWeights take_made() { return std::move(made_); }

  Status status() const;  // lists every missing or mis-shaped tensor

 private:
  TensorView take(const std::string& name, std::vector<int64_t> shape);
  const Checkpoint& checkpoint_;
  std::vector<std::string> problems_;
  MadeWeights made_;
};

}  // namespace lockstep::models
