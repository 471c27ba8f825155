#include "lockstep/models/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace lockstep::models {
namespace {

constexpr size_t kShownProblems = 20;
constexpr size_t kAlignment = 256;
constexpr size_t kChunk = size_t{64} << 20;

float number(const TensorView& vector, int64_t at) {
  return vector.dtype == DType::kBF16 ? to_float(vector.as<BF16>()[at]) : vector.as<float>()[at];
}

}  // namespace

TensorView PlacedWeights::place(const TensorView& weight) {
  if (memory_.access() == Memory::Access::kByHost || weight.empty()) return weight;
  const auto key =
      std::tuple(static_cast<const void*>(weight.data), weight.rows(), weight.cols(), weight.stride[0]);
  const auto [at, is_new] = placed_.try_emplace(key, weight);
  if (!is_new) return at->second;
  const int64_t columns = weight.num_dims == 1 ? weight.rows() : weight.cols();
  const int64_t rows = weight.num_elements() / columns;
  const size_t row_bytes = static_cast<size_t>(columns) * size_of(weight.dtype);
  const size_t apart =
      (weight.num_dims == 1 ? static_cast<size_t>(columns) : static_cast<size_t>(weight.stride[0])) *
      size_of(weight.dtype);
  std::byte* to = room_for(static_cast<size_t>(rows) * row_bytes);
  const auto* from = static_cast<const std::byte*>(weight.data);
  std::vector<std::byte> packed;
  if (apart != row_bytes) {
    packed.resize(static_cast<size_t>(rows) * row_bytes);
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row)
      std::memcpy(packed.data() + row * row_bytes, from + row * apart, row_bytes);
    from = packed.data();
  }
  memory_.upload(to, from, static_cast<size_t>(rows) * row_bytes);
  at->second.data = to;
  if (weight.num_dims == 2) at->second.stride[0] = columns;
  return at->second;
}

// Weights lie one behind the other in a few large buffers.
std::byte* PlacedWeights::room_for(size_t bytes) {
  const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (padded > left_) {
    left_ = std::max(padded, kChunk);
    next_ = static_cast<std::byte*>(
        buffers_.emplace_back(memory_).view(DType::kU8, {static_cast<int64_t>(left_)}).data);
  }
  std::byte* found = next_;
  next_ += padded;
  left_ -= padded;
  return found;
}

TensorView WeightReader::take(const std::string& name, std::vector<int64_t> shape, DType expected) {
  const auto found = checkpoint_.find(name, shape, expected);
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
  return place(take(name, {rows, cols}));
}

TensorView WeightReader::matrix_rows(const std::string& name, int64_t rows, int64_t cols, Range keep) {
  const TensorView whole = take(name, {rows, cols});
  return whole.data == nullptr ? whole : place(whole.row_range(keep.begin, keep.size()));
}

TensorView WeightReader::matrix_cols(const std::string& name, int64_t rows, int64_t cols, Range keep) {
  const TensorView whole = take(name, {rows, cols});
  return whole.data == nullptr ? whole : place(whole.col_range(keep.begin, keep.size()));
}

TensorView WeightReader::vector(const std::string& name, int64_t size) { return place(take(name, {size})); }

TensorView WeightReader::vector_part(const std::string& name, int64_t size, Range keep) {
  const TensorView whole = take(name, {size});
  return whole.data == nullptr ? whole : place(whole.row_range(keep.begin, keep.size()));
}

TensorView WeightReader::f32_vector(const std::string& name, int64_t size) {
  const TensorView found = take(name, {size}, DType::kF32);
  if (found.data == nullptr || found.dtype == DType::kF32) return place(found);
  problems_.push_back(fmt::format("{} is {}, handled is f32", name, name_of(found.dtype)));
  return {};
}

TensorView WeightReader::norm(const std::string& name, int64_t size, NormForm form) {
  const TensorView found = take(name, {size});
  if (form == NormForm::kWhole || found.data == nullptr) return place(found);
  std::vector<float>& whole = made_.emplace_back(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) whole[static_cast<size_t>(i)] = 1 + number(found, i);
  return place(view_of(whole.data(), {size}));
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
  return place(view_of(made.data(), {taps, static_cast<int64_t>(made.size()) / taps}));
}

std::vector<TensorView> WeightReader::matrices(const std::string& name, int64_t count, int64_t rows,
                                               int64_t cols, Range keep) {
  const TensorView whole = take(name, {count, rows, cols});
  std::vector<TensorView> parts;
  if (whole.data == nullptr) return parts;
  for (int64_t at = keep.begin; at < keep.end; ++at) {
    const TensorView one = whole.row_range(at, 1);
    parts.push_back(place(view_of(one.data, one.dtype, {rows, cols})));
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
