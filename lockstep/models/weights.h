#pragma once
// Weight views of one rank. What the file holds in a form that the kernels read is sliced where it is mapped,
// and nothing is copied but small vectors that are kept in another form; a few layouts are repacked, of which
// a rank copies just its part. Problems are collected over the whole model and reported at once. Used by one
// thread.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/kernels/cpu/compute_threads.h"
#include "lockstep/models/placed_weights.h"
#include "lockstep/models/quantization/quant_config.h"
#include "lockstep/models/weight_source.h"
#include "lockstep/tensors/weight_view.h"

namespace lockstep::models {

// How the weight w of a norm lies in the file.
enum class NormForm : uint8_t {
  kWhole,    // w
  kLessOne,  // w - 1, "zero-centred" (Qwen3-Next)
};

// Weights that had to be copied. The model keeps it as long as its views.
class WeightMemory {
 public:
  // 64-byte aligned; zero bytes are memory too.
  std::byte* allocate(size_t bytes);
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::vector<std::unique_ptr<std::byte[], Free>> blocks_;
  size_t bytes_ = 0;
};

// Tensors that a model knows and does not run.
struct KnownTensors {
  std::string prefix;  // "model.layers.61."
  std::string what;    // "the draft layer"
};

// Columns first, first + step, …
struct Every {
  int64_t first = 0, step = 1, count = 0;
};

class WeightReader {
 public:
  explicit WeightReader(const WeightSource& source, QuantConfig quantization = {},
                        const Memory& memory = host_memory());

  // Plain numbers, f32 or bf16 (f16 is widened): [rows, cols], then the named slice of rows or of columns.
  TensorView matrix(const std::string& name, int64_t rows, int64_t cols);
  TensorView matrix_rows(const std::string& name, int64_t rows, int64_t cols, Range keep);
  TensorView matrix_cols(const std::string& name, int64_t rows, int64_t cols, Range keep);
  TensorView vector(const std::string& name, int64_t size);
  TensorView vector_part(const std::string& name, int64_t size, Range keep);
  TensorView f32_vector(const std::string& name, int64_t size);  // widened where it is bf16
  // [size]; made in f32 where the file holds w - 1: a sum in bf16 would round.
  TensorView norm(const std::string& name, int64_t size, NormForm form);
  // A causal convolution by channel, stored [channels, 1, taps], made [taps, kept channels] f32: the channels
  // of all the ranges, one after the other.
  TensorView taps(const std::string& name, int64_t channels, int64_t taps, const std::vector<Range>& keep);

  // A linear layer's weight in any number format, by the name that it has as plain numbers
  // ("model.layers.0.mlp.up_proj.weight").
  WeightView weight(const std::string& name, int64_t rows, int64_t cols);
  WeightView weight_rows(const std::string& name, int64_t rows, int64_t cols, Range keep);
  WeightView weight_cols(const std::string& name, int64_t rows, int64_t cols, Range keep);
  // Of `count` weights that lie together in one tensor [count, rows, cols] ("…mlp.experts.down_proj") those
  // with numbers in `keep`, none when they do not fit. What is used of them must be given to keep().
  std::vector<WeightView> weights(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                                  Range keep_some);
  WeightView keep(WeightView view);  // to be read by finish()
  // Of a tensor of plain numbers [count, rows, cols] that stores inputs first: matrix `n` of those in
  // keep_some has as its rows the columns that `pick` names of the rows `inputs`.
  std::vector<WeightView> transposed(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                                     Range keep_some, Range inputs, const Every& pick);
  // Numbers of the vectors in keep_some of a tensor [count, size].
  std::vector<TensorView> vectors(const std::string& name, int64_t count, int64_t size, Range keep_some,
                                  const Every& pick);

  // Numbers of every name and shape that is asked for, under no name.
  bool is_random() const { return checkpoint_.is_random(); }
  bool has(const std::string& name) const { return checkpoint_.has(name); }
  // Whether weights() would find it, in any form.
  bool has_weights(const std::string& name) const;

  Status status() const;  // lists every missing, mis-shaped or mistyped tensor
  // The end of reading. To run: the bytes of all slices are read from the disk, by this thread. To inspect:
  // tensors of the file that nothing has read are problems too, but for those that are known.
  Status finish(const std::vector<KnownTensors>& known);
  std::shared_ptr<const WeightMemory> memory() const { return memory_; }
  std::shared_ptr<const PlacedWeights> placed() const { return placed_; }

  // For the readers of formats (quantization/): a tensor of one of the shapes (all of as many elements, the
  // first is the one to name) and one of the types, or a problem.
  std::optional<TensorView> take(const std::string& name, const std::vector<std::vector<int64_t>>& shapes,
                                 std::initializer_list<DType> dtypes);
  // Whatever its shape; a problem when it is missing.
  std::optional<TensorView> peek(const std::string& name);
  void report(const std::string& problem);  // once, however often it is met
  std::byte* allocate(size_t bytes) { return memory_->allocate(bytes); }
  std::optional<QuantFormat> encode_as() const { return encode_as_; }
  bool inspects() const { return purpose_ == WeightSource::Purpose::kInspect; }
  void count_read(uint64_t bytes);
  kernels::cpu::ComputeThreads& threads() { return *threads_; }

 private:
  TensorView take_plain(const std::string& name, std::vector<int64_t> shape);
  TensorView keep(TensorView view);
  TensorView transpose(const TensorView& whole, const Every& pick);
  void note_weight(const std::string& name, int64_t count, int64_t rows, int64_t cols);
  void report_unread(const std::vector<KnownTensors>& known);
  void read_kept();

  const Checkpoint& checkpoint_;
  const WeightSource::Purpose purpose_;
  const std::optional<QuantFormat> encode_as_;
  std::atomic<uint64_t>* const bytes_read_;
  std::vector<WeightUse>* const uses_;
  std::vector<std::string>* const left_aside_;
  const QuantConfig quantization_;
  const std::shared_ptr<PlacedWeights> placed_;
  const std::shared_ptr<WeightMemory> memory_ = std::make_shared<WeightMemory>();
  const std::unique_ptr<kernels::cpu::ComputeThreads> threads_;
  std::vector<std::string> problems_;
  std::set<std::string> reported_;
  std::set<std::string> read_;    // to inspect: every tensor that was asked for
  std::vector<WeightView> kept_;  // to run: what lies in the mapped file
};

}  // namespace lockstep::models
