// Encoding against worked examples, and what every layout must keep: a number of its grid comes back as it
// was, and no number is further off than half a step of the grid.
#include "lockstep/tensors/weight_encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lockstep/base/hash.h"
#include "lockstep/tensors/number_formats.h"

namespace lockstep {
namespace {

template <class T>
T at(const EncodedTensor& tensor, size_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::vector<float> decoded(const WeightEncoding& encoding, const std::vector<EncodedTensor>& tensors,
                           int64_t rows, int64_t cols) {
  std::vector<float> numbers(static_cast<size_t>(rows * cols));
  const WeightView view = view_of(encoding, tensors, rows, cols);
  for (int64_t row = 0; row < rows; ++row) decode_row(view, row, 0, cols, numbers.data() + row * cols);
  return numbers;
}

// A block with largest magnitude 0.0896: the factor is 0.0002. 0.0333 is 166.5 steps, between 160 and 176;
// 0.0100 is 50, a tie between 48 and 52 that goes to the even mantissa.
TEST(EncodeFp8, WorkedExample) {
  const std::vector<float> numbers = {0.0896f, 0.0333f, 0.0100f, -0.0001f};
  const WeightEncoding encoding{.format = QuantFormat::kFp8};
  const auto tensors = encode_weight(encoding, numbers.data(), 1, 4);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].suffix, ".weight");
  EXPECT_EQ(tensors[1].suffix, ".weight_scale_inv");
  EXPECT_FLOAT_EQ(at<float>(tensors[1], 0), 0.0002f);
  const uint8_t want[] = {0x7e, 0x72, 0x64, 0xb0};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(at<uint8_t>(tensors[0], i), want[i]) << i;
  const auto back = decoded(encoding, tensors, 1, 4);
  EXPECT_NEAR(back[1], 0.0320f, 1e-8);
  EXPECT_NEAR(back[2], 0.0096f, 1e-8);
  EXPECT_NEAR(back[3], -0.0001f, 1e-8);
}

// 576 rows are five blocks of 128, the last one half full.
TEST(EncodeFp8, TheLastBlockMayBePartial) {
  const auto tensors = encoded_tensors({.format = QuantFormat::kFp8}, 576, 7168);
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{5, 56}));
}

// Largest of the tensor 2.688: 2688 / 2.688 = 1000. A block with largest 0.75: 0.75 / 6 · 1000 = 125, between
// 120 and 128: 0x70, so that a unit is 0.128.
TEST(EncodeNvfp4, WorkedExample) {
  std::vector<float> numbers(32, 0.0f);
  const float block[] = {0.75f, -0.20f, 0.05f, 0.03f, -0.45f, 0.32f};
  std::copy(std::begin(block), std::end(block), numbers.begin());
  numbers[16] = 2.688f;
  const WeightEncoding encoding{.format = QuantFormat::kNvfp4};
  const auto tensors = encode_weight(encoding, numbers.data(), 1, 32);
  EXPECT_NEAR(at<float>(tensors[2], 0), 1000, 1e-3);
  EXPECT_EQ(at<uint8_t>(tensors[1], 0), 0x70);
  EXPECT_EQ(at<uint8_t>(tensors[1], 1), 0x7e);
  const uint8_t want[] = {0xb7, 0x01, 0x4e};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(at<uint8_t>(tensors[0], i), want[i]) << i;
  const auto back = decoded(encoding, tensors, 1, 32);
  const float expected[] = {0.768f, -0.192f, 0.064f, 0, -0.512f, 0.256f};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(back[i], expected[i], 1e-6) << i;
}

// Factor byte 121 is 2^-6; 0xB7 holds 6 and -1.5 of it.
TEST(EncodeMxfp4, WorkedExample) {
  std::vector<float> numbers(32, 0.0f);
  numbers[0] = 0.09375f;
  numbers[1] = -0.0234375f;
  const WeightEncoding encoding{.format = QuantFormat::kMxfp4};
  const auto tensors = encode_weight(encoding, numbers.data(), 1, 32);
  EXPECT_EQ(at<uint8_t>(tensors[1], 0), 121);
  EXPECT_EQ(at<uint8_t>(tensors[0], 0), 0xb7);
  EXPECT_EQ(decoded(encoding, tensors, 1, 32), numbers);
}

// Signed 4-bit integers, eight to a word with the lowest bits first, kept as the integer plus 8.
TEST(EncodeInt4, PacksWordsFromTheLowestBits) {
  const std::vector<float> numbers = {-8, -7, -1, 0, 1, 2, 6, 7, 0, 0, 0, 0, 0, 0, 0, 7.5f};
  const WeightEncoding encoding{.format = QuantFormat::kInt4, .group_size = 16};
  std::vector<float> scaled = numbers;
  scaled[15] = 7.5f;
  scaled[0] = -7.5f;  // a factor of exactly 1
  const auto tensors = encode_weight(encoding, scaled.data(), 1, 16);
  EXPECT_EQ(to_float(at<BF16>(tensors[1], 0)), 1);
  EXPECT_EQ(at<uint32_t>(tensors[0], 0), 0xfea98710u);  // 0, 1, 7, 8, 9, 10, 14, 15
  EXPECT_EQ(at<int64_t>(tensors[2], 0), 1);
  EXPECT_EQ(at<int64_t>(tensors[2], 1), 16);
}

TEST(Encode, ANumberIsOffByHalfAStepAtMost) {
  const int64_t rows = 130, cols = 256;
  std::vector<float> numbers(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>((2 * uniform_draw(7, i) - 1) * std::exp(4 * uniform_draw(8, i)));
  for (const QuantFormat format : {QuantFormat::kFp8, QuantFormat::kNvfp4, QuantFormat::kMxfp4,
                                   QuantFormat::kInt8, QuantFormat::kInt4}) {
    SCOPED_TRACE(static_cast<int>(format));
    const WeightEncoding encoding{.format = format, .group_size = 32};
    const auto tensors = encode_weight(encoding, numbers.data(), rows, cols);
    const WeightView view = view_of(encoding, tensors, rows, cols);
    const auto back = decoded(encoding, tensors, rows, cols);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < cols; ++col) {
        const auto i = static_cast<size_t>(row * cols + col);
        const float unit = view.scale_at(row, col) * view.factor;
        const float in_units = std::abs(numbers[i]) / unit;
        // The distance of neighbours on the grid where the number lies, and what saturation may cost.
        float step = 1;
        if (format == QuantFormat::kFp8) step = std::max(0x1p-9f, std::ldexp(1.0f, std::ilogb(in_units) - 3));
        if (format == QuantFormat::kNvfp4 || format == QuantFormat::kMxfp4)
          step = in_units < 2 ? 0.5f : in_units < 4 ? 1 : 2;
        if (format == QuantFormat::kMxfp4 && in_units > 6) step = 2 * (in_units - 6);  // below 8, to 6
        // The factor of int4 is the largest number over 7.5, rounded to bf16, and the largest integer is 7.
        if (format == QuantFormat::kInt4 && in_units > 7.5f) step = 2 * (in_units - 7);
        if (format == QuantFormat::kInt4) {
          ASSERT_LE(in_units, 7.5f * (1 + 0x1p-8f));
        }
        // The factor of NVFP4 is rounded to three bits: 6 units may be up to 1/16 below the largest number.
        if (format == QuantFormat::kNvfp4 && in_units > 6) step = 2 * (in_units - 6);
        ASSERT_LE(std::abs(back[i] - numbers[i]), unit * step / 2 * 1.0001f + 1e-6f * std::abs(numbers[i]))
            << row << " " << col;
        if (format == QuantFormat::kNvfp4) {
          ASSERT_LE(in_units, 6 * (1 + 1.0f / 16));
        }
      }
    // What is on the grid stays there, where the factor follows from a number that is on it.
    if (format == QuantFormat::kNvfp4 || format == QuantFormat::kInt4) continue;
    const auto same = decoded(encoding, encode_weight(encoding, back.data(), rows, cols), rows, cols);
    const float slack =
        format == QuantFormat::kFp8 ? 1e-6f : 0;  // its factor is rounded, the others' are not
    for (size_t i = 0; i < back.size(); ++i) ASSERT_NEAR(same[i], back[i], std::abs(back[i]) * slack) << i;
  }
}

TEST(Encode, ZerosStayZero) {
  const std::vector<float> zeros(64 * 128, 0.0f);
  for (const QuantFormat format : {QuantFormat::kFp8, QuantFormat::kNvfp4, QuantFormat::kMxfp4,
                                   QuantFormat::kInt8, QuantFormat::kInt4}) {
    const WeightEncoding encoding{.format = format};
    EXPECT_EQ(decoded(encoding, encode_weight(encoding, zeros.data(), 64, 128), 64, 128), zeros);
  }
}

// A view that is cut anywhere, through blocks and bytes, means the same numbers.
TEST(WeightView, APartMeansWhatTheWholeDoes) {
  const int64_t rows = 150, cols = 160;
  std::vector<float> numbers(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(2 * uniform_draw(3, i) - 1);
  for (const QuantFormat format : {QuantFormat::kFp8, QuantFormat::kNvfp4, QuantFormat::kMxfp4,
                                   QuantFormat::kInt8, QuantFormat::kInt4}) {
    const WeightEncoding encoding{.format = format, .group_size = 32};
    const auto tensors = encode_weight(encoding, numbers.data(), rows, cols);
    const auto whole = decoded(encoding, tensors, rows, cols);
    const WeightView view = view_of(encoding, tensors, rows, cols);
    for (const int64_t row : {0, 1, 127, 128, 149})
      for (const int64_t col : {0, 1, 15, 16, 31, 77, 128, 159}) {
        const WeightView part = view.row_range(row, rows - row).col_range(col, cols - col).row_range(0, 1);
        std::vector<float> line(static_cast<size_t>(cols - col));
        decode_row(part, 0, 0, cols - col, line.data());
        for (int64_t i = 0; i < cols - col; ++i)
          ASSERT_EQ(line[static_cast<size_t>(i)], whole[static_cast<size_t>(row * cols + col + i)])
              << row << " " << col << " " << i;
      }
    EXPECT_THROW((void)view.row_range(1, rows), Fatal);
    EXPECT_THROW((void)view.col_range(cols, 1), Fatal);
  }
}

}  // namespace
}  // namespace lockstep
