#pragma once
// Weight views of one rank, sliced where the file is mapped: nothing is copied. Problems are collected over
// the whole model and reported at once.
#include <string>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/tensors/safetensors.h"

namespace lockstep::models {

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
  // The matrices [rows, cols] with numbers in `keep` of a tensor [count, rows, cols]; none when it is not
  // there.
  std::vector<TensorView> matrices(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                                   Range keep);

  bool has(const std::string& name) const { return checkpoint_.has(name); }

  Status status() const;  // lists every missing or mis-shaped tensor

 private:
  TensorView take(const std::string& name, std::vector<int64_t> shape);
  const Checkpoint& checkpoint_;
  std::vector<std::string> problems_;
};

}  // namespace lockstep::models
