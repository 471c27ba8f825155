#pragma once
// Weight views of one rank, sliced where the file is mapped. For the host copied are only the small vectors
// that are kept in another form than the file's; into a device's memory every slice is copied once, by
// itself. Problems are collected over the whole model and reported at once.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/tensors/memory.h"
#include "lockstep/tensors/safetensors.h"

namespace lockstep::models {

// How the weight w of a norm lies in the file.
enum class NormForm : uint8_t {
  kWhole,    // w
  kLessOne,  // w - 1, "zero-centred" (Qwen3-Next)
};

// Numbers of one rank's weights that stand in no file. Moving it moves no number.
using MadeWeights = std::vector<std::vector<float>>;

// What was copied for a model; it lives as long as the model does.
class PlacedWeights {
 public:
  explicit PlacedWeights(const Memory& memory) : memory_(memory) {}
  // The same numbers in `memory`. A view that was asked for before is not copied again.
  TensorView place(const TensorView& weight);

 private:
  std::byte* room_for(size_t bytes);

  const Memory& memory_;
  std::vector<Buffer> buffers_;
  std::byte* next_ = nullptr;  // in the last buffer
  size_t left_ = 0;
  std::map<std::tuple<const void*, int64_t, int64_t, int64_t>, TensorView>
      placed_;  // by place, shape, stride
};

class WeightReader {
 public:
  explicit WeightReader(const Checkpoint& checkpoint, const Memory& memory = host_memory())
      : checkpoint_(checkpoint), placed_(std::make_shared<PlacedWeights>(memory)) {}

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
  std::shared_ptr<const PlacedWeights> placed() const { return placed_; }

 private:
  TensorView take(const std::string& name, std::vector<int64_t> shape, DType expected = DType::kBF16);
  TensorView place(const TensorView& weight) { return placed_->place(weight); }
  const Checkpoint& checkpoint_;
  std::shared_ptr<PlacedWeights> placed_;
  std::vector<std::string> problems_;
  MadeWeights made_;
};

}  // namespace lockstep::models
