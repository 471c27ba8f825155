#include "lockstep/tensors/weight_view.h"

#include <algorithm>

#include "lockstep/tensors/block_row.h"

namespace lockstep {
namespace {

using Element = QuantScheme::Element;

// The number behind a code, before zero point and scale. row: the codes of the row; col: in the stored
// matrix.
float number_of(Element element, const uint8_t* row, int64_t col) {
  switch (element) {
    case Element::kF16:
      return from_f16(static_cast<uint16_t>(row[2 * col] | row[2 * col + 1] << 8));
    case Element::kE4M3:
      return from_e4m3(row[col]);
    case Element::kI8:
      return static_cast<float>(static_cast<int8_t>(row[col]));
    case Element::kU8:
      return static_cast<float>(row[col]);
    case Element::kE2M1:
    case Element::kU4:
      break;
  }
  const auto code = static_cast<uint8_t>(row[col / 2] >> (col % 2 == 0 ? 0 : 4) & 15);
  return element == Element::kE2M1 ? from_e2m1(code) : static_cast<float>(code);
}

void decode_plain(const TensorView& plain, int64_t row, int64_t begin, int64_t count, float* out) {
  const int64_t at = row * plain.stride[0] + begin;
  if (plain.dtype == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) out[i] = to_float(plain.as<BF16>()[at + i]);
  } else {
    std::copy_n(plain.as<float>() + at, count, out);
  }
}

}  // namespace

int bits_of(Element element) {
  switch (element) {
    case Element::kF16:
      return 16;
    case Element::kE4M3:
    case Element::kI8:
    case Element::kU8:
      return 8;
    case Element::kE2M1:
    case Element::kU4:
      return 4;
  }
  return 0;
}

std::string_view name_of(Element element) {
  switch (element) {
    case Element::kF16:
      return "f16";
    case Element::kE4M3:
      return "e4m3";
    case Element::kE2M1:
      return "e2m1";
    case Element::kI8:
      return "i8";
    case Element::kU8:
      return "u8";
    case Element::kU4:
      return "u4";
  }
  return "?";
}

int64_t bytes_of(QuantScheme::Scale scale) {
  switch (scale) {
    case QuantScheme::Scale::kNone:
      return 0;
    case QuantScheme::Scale::kF32:
      return 4;
    case QuantScheme::Scale::kBF16:
    case QuantScheme::Scale::kF16:
      return 2;
    case QuantScheme::Scale::kE4M3:
    case QuantScheme::Scale::kE8M0:
      return 1;
  }
  return 0;
}

WeightView WeightView::row_range(int64_t begin, int64_t count) const {
  LOCKSTEP_CHECK(begin >= 0 && count >= 0 && begin <= num_rows && count <= num_rows - begin,
                 "rows {} + {} of {}", begin, count, num_rows);
  if (!is_coded() && plain.num_dims > 0) return plain.row_range(begin, count);
  WeightView part = *this;
  part.num_rows = count;
  part.first_row += begin;
  return part;
}

WeightView WeightView::col_range(int64_t begin, int64_t count) const {
  LOCKSTEP_CHECK(begin >= 0 && count >= 0 && begin <= num_cols && count <= num_cols - begin,
                 "columns {} + {} of {}", begin, count, num_cols);
  if (!is_coded() && plain.num_dims > 0) return plain.col_range(begin, count);
  WeightView part = *this;
  part.num_cols = count;
  part.first_col += begin;
  return part;
}

WeightView WeightView::every_second_row(int64_t first) const {
  LOCKSTEP_CHECK(is_coded() && first_row == 0 && zeros == nullptr,
                 "a part of a matrix, or one with zero points");
  LOCKSTEP_CHECK_EQ(scheme.block_rows, 1);
  LOCKSTEP_CHECK_EQ(num_rows % 2, 0);
  WeightView part = *this;
  part.codes += first * row_bytes;
  part.scales = static_cast<const std::byte*>(scales) + first * scale_stride * bytes_of(scheme.scale);
  part.row_bytes *= 2;
  part.scale_stride *= 2;
  part.num_rows /= 2;
  return part;
}

float WeightView::scale_at(int64_t row, int64_t col) const { return BlockRow(*this, row, col).scale(); }

void decode_row(const WeightView& weight, int64_t row, int64_t begin, int64_t count, float* out) {
  LOCKSTEP_CHECK(row >= 0 && row < weight.num_rows && begin >= 0 && count >= 0 && begin <= weight.num_cols &&
                     count <= weight.num_cols - begin,
                 "row {}, columns {} + {} of [{}, {}]", row, begin, count, weight.num_rows, weight.num_cols);
  if (!weight.is_coded()) return decode_plain(weight.plain, row, begin, count, out);
  const uint8_t* codes = weight.codes + (weight.first_row + row) * weight.row_bytes;
  BlockRow blocks(weight, row, begin);
  for (int64_t i = 0; i < count; blocks.advance()) {
    const float zero = static_cast<float>(blocks.zero()), scale = blocks.scale() * weight.factor;
    for (const int64_t end = std::min(i + blocks.run(), count); i < end; ++i)
      out[i] = (number_of(weight.scheme.element, codes, weight.first_col + begin + i) - zero) * scale;
  }
}

}  // namespace lockstep
