#include "lockstep/models/weights.h"

#include <fmt/ranges.h>

namespace lockstep::models {
namespace {

constexpr size_t kShownProblems = 20;

float number(const TensorView& vector, int64_t at) {
  return vector.dtype == DType::kBF16 ? to_float(vector.as<BF16>()[at]) : vector.as<float>()[at];
}

}  // namespace

TensorView WeightReader::take(const std::string& name, std::vector<int64_t> shape) {
  const auto found = checkpoint_.find(name);
  if (!found) {
    problems_.push_back(fmt::format("{} is missing", name));
    return {};
  }
  const std::vector<int64_t> has(found->shape.begin(), found->shape.begin() + found->num_dims);
  if (has != shape) {
    problems_.push_back(
        fmt::format("{} is [{}], expected [{}]", name, fmt::join(has, ", "), fmt::join(shape, ", ")));
    return {};
  }
  if (found->dtype != DType::kF32 && found->dtype != DType::kBF16) {
    problems_.push_back(fmt::format("{} is {}, handled are f32 and bf16", name, name_of(found->dtype)));
    return {};
  }
  return *found;
}

TensorView WeightReader::matrix(const std::string& name, int64_t rows, int64_t cols) {
  return take(name, {rows, cols});
}

TensorView WeightReader::matrix_rows(const std::string& name, int64_t rows, int64_t cols, Range keep) {
  const TensorView whole = matrix(name, rows, cols);
  return whole.data == nullptr ? whole : whole.row_range(keep.begin, keep.size());
}

TensorView WeightReader::matrix_cols(const std::string& name, int64_t rows, int64_t cols, Range keep) {
  const TensorView whole = matrix(name, rows, cols);
  return whole.data == nullptr ? whole : whole.col_range(keep.begin, keep.size());
}

TensorView WeightReader::vector(const std::string& name, int64_t size) { return take(name, {size}); }

TensorView WeightReader::vector_part(const std::string& name, int64_t size, Range keep) {
  const TensorView whole = vector(name, size);
  return whole.data == nullptr ? whole : whole.row_range(keep.begin, keep.size());
}

TensorView WeightReader::f32_vector(const std::string& name, int64_t size) {
  const TensorView found = vector(name, size);
  if (found.data == nullptr || found.dtype == DType::kF32) return found;
  problems_.push_back(fmt::format("{} is {}, handled is f32", name, name_of(found.dtype)));
  return {};
}

TensorView WeightReader::norm(const std::string& name, int64_t size, NormForm form) {
  const TensorView found = vector(name, size);
  if (form == NormForm::kWhole || found.data == nullptr) return found;
  std::vector<float>& whole = made_.emplace_back(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) whole[static_cast<size_t>(i)] = 1 + number(found, i);
  return view_of(whole.data(), {size});
}

TensorView WeightReader::taps(const std::string& name, int64_t channels, int64_t taps,
                              const std::vector<Range>& keep) {
  const TensorView found = take(name, {channels, 1, taps});
  if (found.data == nullptr) return found;
  std::vector<float>& made = made_.emplace_back();
  for (int64_t tap = 0; tap < taps; ++tap)
    for (const Range& range : keep)
      for (int64_t channel = range.begin; channel < range.end; ++channel)
        made.push_back(number(found, channel * taps + tap));
  return view_of(made.data(), {taps, static_cast<int64_t>(made.size()) / taps});
}

std::vector<TensorView> WeightReader::matrices(const std::string& name, int64_t count, int64_t rows,
                                               int64_t cols, Range keep) {
  const TensorView whole = take(name, {count, rows, cols});
  std::vector<TensorView> parts;
  if (whole.data == nullptr) return parts;
  for (int64_t at = keep.begin; at < keep.end; ++at) {
    const TensorView one = whole.row_range(at, 1);
    parts.push_back(view_of(one.data, one.dtype, {rows, cols}));
  }
  return parts;
}

Status WeightReader::status() const {
  if (problems_.empty()) return Done{};
  const std::vector<std::string> shown(
      problems_.begin(),
      problems_.begin() + static_cast<std::ptrdiff_t>(std::min(problems_.size(), kShownProblems)));
  return invalid_argument("model.safetensors", "{} tensors do not fit the config: {}{}", problems_.size(),
                          fmt::join(shown, "; "), problems_.size() > kShownProblems ? "; …" : "");
}

}  // namespace lockstep::models
