#pragma once
// A matrix of weights as it lies in memory: plain numbers (f32, bf16), or codes with a factor for each block.
// The scheme is data, so one decoder serves every published format. A view of a part keeps its place in the
// grid of blocks: it may be cut anywhere, through blocks and between two codes of a byte, and means the same
// numbers. Non-owning; decoding a row is here, products on codes are the kernels'.
#include "lockstep/tensors/tensor.h"

namespace lockstep {

struct QuantScheme {
  enum class Element : uint8_t {
    kF16,   // half precision
    kE4M3,  // FP8
    kE2M1,  // FP4, two codes a byte along the columns, the even column in the lower half
    kI8,
    kU8,
    kU4,  // two codes a byte, as kE2M1
  } element = Element::kE4M3;
  enum class Scale : uint8_t { kNone, kF32, kBF16, kF16, kE4M3, kE8M0 } scale = Scale::kNone;
  int64_t block_rows = 1, block_cols = 1;  // numbers that share a factor and a zero point; at least 1
};
int bits_of(QuantScheme::Element element);
std::string_view name_of(QuantScheme::Element element);  // "e4m3", …
int64_t bytes_of(QuantScheme::Scale scale);

// number(row, col) = (code - zero) · scale of the block · factor
struct WeightView {
  WeightView() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): plain numbers are weights as they are.
  WeightView(const TensorView& numbers)
      : plain(numbers), num_rows(numbers.rows()), num_cols(numbers.cols()) {}

  TensorView plain;                // [rows, cols] f32 or bf16; empty when there are codes
  const uint8_t* codes = nullptr;  // of row 0 and column 0 of the stored matrix
  int64_t row_bytes = 0;           // between two rows of codes
  QuantScheme scheme;
  const void* scales = nullptr;           // [block rows, block columns] of the stored matrix
  int64_t scale_stride = 0;               // numbers between two block rows of scales, zeros too
  const uint8_t* zeros = nullptr;         // the same grid, signed for kI8; none: `zero` everywhere
  const int32_t* block_of_col = nullptr;  // [stored columns]; none: column / block_cols
  int32_t zero = 0;
  float factor = 1;
  int64_t num_rows = 0, num_cols = 0;    // of this view
  int64_t first_row = 0, first_col = 0;  // of this view in the stored matrix

  int64_t rows() const { return num_rows; }
  int64_t cols() const { return num_cols; }
  bool is_coded() const { return codes != nullptr; }
  bool is_bf16() const { return codes == nullptr && plain.dtype == DType::kBF16; }
  bool empty() const { return num_rows == 0 || num_cols == 0 || (codes == nullptr && plain.data == nullptr); }

  WeightView row_range(int64_t begin, int64_t count) const;
  WeightView col_range(int64_t begin, int64_t count) const;
  // Of a whole coded matrix with a factor a row, the even rows (first 0) or the odd ones (1).
  WeightView every_second_row(int64_t first) const;

  // Of a coded view, without `factor`. Both coordinates are this view's.
  float scale_at(int64_t row, int64_t col) const;
};

// out[i] = number(row, begin + i) in float32: (code - zero) exactly, times the rounded scale · factor. The
// reference for every faster decoder, which must give the same bits. Takes plain views too.
void decode_row(const WeightView& weight, int64_t row, int64_t begin, int64_t count, float* out);

}  // namespace lockstep
