#include "lockstep/models/placed_weights.h"

#include <algorithm>
#include <cstring>

namespace lockstep::models {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kChunk = size_t{64} << 20;

}  // namespace

TensorView PlacedWeights::place(const TensorView& weight) {
  if (is_on_host() || weight.empty()) return weight;
  const auto key =
      std::tuple(static_cast<const void*>(weight.data), weight.rows(), weight.cols(), weight.stride[0]);
  const auto [at, is_new] = placed_.try_emplace(key, weight);
  if (is_new) at->second = copy(weight);
  return at->second;
}

WeightView PlacedWeights::place(const WeightView& weight) {
  if (!weight.is_coded()) return weight.plain.num_dims == 0 ? weight : WeightView(place(weight.plain));
  if (is_on_host() || weight.empty()) return weight;
  std::vector<BF16> numbers(static_cast<size_t>(weight.rows() * weight.cols()));
  std::vector<float> line(static_cast<size_t>(weight.cols()));
  for (int64_t row = 0; row < weight.rows(); ++row) {
    decode_row(weight, row, 0, weight.cols(), line.data());
    std::transform(line.begin(), line.end(), numbers.begin() + row * weight.cols(), to_bf16);
  }
  return copy(view_of(numbers.data(), DType::kBF16, {weight.rows(), weight.cols()}));
}

TensorView PlacedWeights::copy(const TensorView& weight) {
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
  TensorView there = weight;
  there.data = to;
  if (weight.num_dims == 2) there.stride[0] = columns;
  return there;
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

}  // namespace lockstep::models
