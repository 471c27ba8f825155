#include "lockstep/tensors/weight_encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "lockstep/tensors/number_formats.h"

namespace lockstep {
namespace {

constexpr int64_t kFp8Block = 128, kNvfp4Block = 16, kMxfp4Block = 32;
constexpr float kLargestE4M3 = 448, kLargestE2M1 = 6;

int64_t blocks_of(int64_t total, int64_t block) { return (total + block - 1) / block; }

// Of finite numbers. Without their signs they are ordered as their bits are, and integers compilers
// vectorise.
float largest(const float* numbers, int64_t count) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<int32_t>(numbers[i]) & 0x7fffffff);
  return std::bit_cast<float>(most);
}

struct Matrix {
  const float* numbers;
  int64_t rows, cols;
  const float* row(int64_t at) const { return numbers + at * cols; }
};

template <class T>
T* data_of(EncodedTensor& tensor) {
  return reinterpret_cast<T*>(tensor.bytes.data());
}

void set_nibble(uint8_t* row, int64_t col, uint8_t code) {
  row[col / 2] = static_cast<uint8_t>(row[col / 2] | code << (col % 2 == 0 ? 0 : 4));
}

void encode_fp8(const Matrix& m, std::vector<EncodedTensor>& out) {
  const int64_t block_cols = blocks_of(m.cols, kFp8Block);
  auto* codes = data_of<uint8_t>(out[0]);
  auto* scales = data_of<float>(out[1]);
  for (int64_t row = 0; row < m.rows; row += kFp8Block) {
    const int64_t end_row = std::min(row + kFp8Block, m.rows);
    for (int64_t col = 0; col < m.cols; col += kFp8Block) {
      const int64_t width = std::min(kFp8Block, m.cols - col);
      float most = 0;
      for (int64_t r = row; r < end_row; ++r) most = std::max(most, largest(m.row(r) + col, width));
      const float quotient = most / kLargestE4M3;
      const float scale = quotient > 0 ? quotient : 1;
      scales[row / kFp8Block * block_cols + col / kFp8Block] = scale;
      for (int64_t r = row; r < end_row; ++r)
        for (int64_t c = col; c < col + width; ++c) codes[r * m.cols + c] = to_e4m3(m.row(r)[c] / scale);
    }
  }
}

void encode_nvfp4(const Matrix& m, std::vector<EncodedTensor>& out) {
  const float most = largest(m.numbers, m.rows * m.cols);
  const float quotient = kLargestE4M3 * kLargestE2M1 / most;
  const float global = most > 0 && std::isfinite(quotient) ? quotient : 1;
  *data_of<float>(out[2]) = global;
  const int64_t blocks = m.cols / kNvfp4Block;
  for (int64_t row = 0; row < m.rows; ++row) {
    auto* codes = data_of<uint8_t>(out[0]) + row * m.cols / 2;
    auto* scales = data_of<uint8_t>(out[1]) + row * blocks;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * kNvfp4Block;
      scales[block] = to_e4m3(largest(m.row(row) + begin, kNvfp4Block) / kLargestE2M1 * global);
      const float unit = from_e4m3(scales[block]) / global;
      for (int64_t c = begin; unit > 0 && c < begin + kNvfp4Block; ++c)
        set_nibble(codes, c, to_e2m1(m.row(row)[c] / unit));
    }
  }
}

// The factor of OCP Microscaling Formats 1.0, section 6.3: the largest number's power of two over that of 6.
uint8_t mx_scale(float most) {
  if (!(most > 0)) return 0;
  return static_cast<uint8_t>(std::clamp(std::ilogb(most) - 2 + 127, 0, 254));
}

void encode_mxfp4(const Matrix& m, std::vector<EncodedTensor>& out) {
  const int64_t blocks = m.cols / kMxfp4Block;
  for (int64_t row = 0; row < m.rows; ++row) {
    auto* codes = data_of<uint8_t>(out[0]) + row * m.cols / 2;
    auto* scales = data_of<uint8_t>(out[1]) + row * blocks;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * kMxfp4Block;
      scales[block] = mx_scale(largest(m.row(row) + begin, kMxfp4Block));
      const float unit = from_e8m0(scales[block]);
      for (int64_t c = begin; c < begin + kMxfp4Block; ++c)
        set_nibble(codes, c, to_e2m1(m.row(row)[c] / unit));
    }
  }
}

// Symmetric integers: the factor is rounded to bf16 first, then the numbers by what it became.
BF16 integer_scale(float most, float steps) {
  const BF16 scale = to_bf16(most / steps);
  return to_float(scale) > 0 ? scale : to_bf16(1);
}

// To the nearest, of two the even one. Adding and taking away 1.5 · 2^23 does so for what is below 2^22,
// without the call that nearbyint is.
int rounded(float number, float scale, int least, int most) {
  constexpr float kRounds = 0x1.8p23f;
  const float bounded =
      std::min(std::max(number / scale, static_cast<float>(least)), static_cast<float>(most));
  return static_cast<int>(bounded + kRounds - kRounds);
}

void encode_int8(const Matrix& m, std::vector<EncodedTensor>& out) {
  for (int64_t row = 0; row < m.rows; ++row) {
    const BF16 scale = integer_scale(largest(m.row(row), m.cols), 127);
    data_of<BF16>(out[1])[row] = scale;
    const float unit = to_float(scale);
    for (int64_t c = 0; c < m.cols; ++c)
      data_of<int8_t>(out[0])[row * m.cols + c] =
          static_cast<int8_t>(rounded(m.row(row)[c], unit, -127, 127));
  }
}

void encode_int4(const Matrix& m, int64_t group, std::vector<EncodedTensor>& out) {
  const int64_t groups = m.cols / group;
  for (int64_t row = 0; row < m.rows; ++row) {
    auto* codes = data_of<uint8_t>(out[0]) + row * out[0].shape[1] * 4;
    for (int64_t g = 0; g < groups; ++g) {
      const BF16 scale = integer_scale(largest(m.row(row) + g * group, group), 7.5f);
      data_of<BF16>(out[1])[row * groups + g] = scale;
      for (int64_t c = g * group; c < (g + 1) * group; ++c)
        set_nibble(codes, c, static_cast<uint8_t>(rounded(m.row(row)[c], to_float(scale), -8, 7) + 8));
    }
  }
}

EncodedTensor tensor(std::string suffix, DType dtype, std::vector<int64_t> shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  return {.suffix = std::move(suffix),
          .dtype = dtype,
          .shape = std::move(shape),
          .bytes = std::vector<std::byte>(count * size_of(dtype))};
}

}  // namespace

bool WeightEncoding::fits(int64_t cols) const {
  switch (format) {
    case QuantFormat::kFp8:
    case QuantFormat::kInt8:
      return true;
    case QuantFormat::kNvfp4:
      return cols % kNvfp4Block == 0;
    case QuantFormat::kMxfp4:
      return cols % kMxfp4Block == 0;
    case QuantFormat::kInt4:
      return cols % group_size == 0 && cols % 8 == 0;
  }
  return false;
}

std::vector<EncodedTensor> encoded_tensors(const WeightEncoding& encoding, int64_t rows, int64_t cols) {
  LOCKSTEP_CHECK(encoding.fits(cols), "{} columns have no place in blocks", cols);
  std::vector<EncodedTensor> out;
  switch (encoding.format) {
    case QuantFormat::kFp8:
      out.push_back(tensor(".weight", DType::kF8E4M3, {rows, cols}));
      out.push_back(
          tensor(".weight_scale_inv", DType::kF32, {blocks_of(rows, kFp8Block), blocks_of(cols, kFp8Block)}));
      break;
    case QuantFormat::kNvfp4:
      out.push_back(tensor(".weight_packed", DType::kU8, {rows, cols / 2}));
      out.push_back(tensor(".weight_scale", DType::kF8E4M3, {rows, cols / kNvfp4Block}));
      out.push_back(tensor(".weight_global_scale", DType::kF32, {1}));
      break;
    case QuantFormat::kMxfp4:
      out.push_back(tensor(".weight_packed", DType::kU8, {rows, cols / 2}));
      out.push_back(tensor(".weight_scale", DType::kU8, {rows, cols / kMxfp4Block}));
      break;
    case QuantFormat::kInt8:
      out.push_back(tensor(".weight", DType::kI8, {rows, cols}));
      out.push_back(tensor(".weight_scale", DType::kBF16, {rows, 1}));
      break;
    case QuantFormat::kInt4:
      out.push_back(tensor(".weight_packed", DType::kI32, {rows, cols / 8}));
      out.push_back(tensor(".weight_scale", DType::kBF16, {rows, cols / encoding.group_size}));
      out.push_back(tensor(".weight_shape", DType::kI64, {2}));
      break;
  }
  return out;
}

std::vector<EncodedTensor> encode_weight(const WeightEncoding& encoding, const float* numbers, int64_t rows,
                                         int64_t cols) {
  std::vector<EncodedTensor> out = encoded_tensors(encoding, rows, cols);
  const Matrix m{numbers, rows, cols};
  switch (encoding.format) {
    case QuantFormat::kFp8:
      encode_fp8(m, out);
      break;
    case QuantFormat::kNvfp4:
      encode_nvfp4(m, out);
      break;
    case QuantFormat::kMxfp4:
      encode_mxfp4(m, out);
      break;
    case QuantFormat::kInt8:
      encode_int8(m, out);
      break;
    case QuantFormat::kInt4:
      encode_int4(m, encoding.group_size, out);
      const int64_t shape[2] = {rows, cols};
      std::memcpy(out[2].bytes.data(), shape, sizeof shape);
      break;
  }
  return out;
}

WeightView view_of(const WeightEncoding& encoding, const std::vector<EncodedTensor>& tensors, int64_t rows,
                   int64_t cols) {
  WeightView view;
  view.codes = reinterpret_cast<const uint8_t*>(tensors[0].bytes.data());
  view.scales = tensors[1].bytes.data();
  view.num_rows = rows;
  view.num_cols = cols;
  using Element = QuantScheme::Element;
  using Scale = QuantScheme::Scale;
  switch (encoding.format) {
    case QuantFormat::kFp8:
      view.scheme = {Element::kE4M3, Scale::kF32, kFp8Block, kFp8Block};
      break;
    case QuantFormat::kNvfp4:
      view.scheme = {Element::kE2M1, Scale::kE4M3, 1, kNvfp4Block};
      view.factor = 1 / *reinterpret_cast<const float*>(tensors[2].bytes.data());
      break;
    case QuantFormat::kMxfp4:
      view.scheme = {Element::kE2M1, Scale::kE8M0, 1, kMxfp4Block};
      break;
    case QuantFormat::kInt8:
      view.scheme = {Element::kI8, Scale::kBF16, 1, std::max<int64_t>(cols, 1)};
      break;
    case QuantFormat::kInt4:
      view.scheme = {Element::kU4, Scale::kBF16, 1, encoding.group_size};
      view.zero = 8;
      break;
  }
  view.row_bytes = cols * bits_of(view.scheme.element) / 8;
  view.scale_stride = blocks_of(cols, view.scheme.block_cols);
  return view;
}

}  // namespace lockstep
