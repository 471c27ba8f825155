#include "lockstep/tensors/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

TEST(TensorView, SizesAndNamesOfDTypes) {
  EXPECT_EQ(size_of(DType::kF32), 4u);
  EXPECT_EQ(size_of(DType::kBF16), 2u);
  EXPECT_EQ(size_of(DType::kF16), 2u);
  EXPECT_EQ(size_of(DType::kF8E4M3), 1u);
  EXPECT_EQ(size_of(DType::kI32), 4u);
  EXPECT_EQ(size_of(DType::kI64), 8u);
  EXPECT_EQ(size_of(DType::kU8), 1u);
  EXPECT_EQ(name_of(DType::kF32), "f32");
  EXPECT_EQ(name_of(DType::kBF16), "bf16");
  EXPECT_EQ(name_of(DType::kF8E4M3), "f8_e4m3");
}

TEST(TensorView, ContiguousStrides) {
  std::vector<float> memory(24);
  const TensorView cube = view_of(memory.data(), {2, 3, 4});
  EXPECT_EQ(cube.num_elements(), 24);
  EXPECT_EQ(cube.stride[0], 12);
  EXPECT_EQ(cube.stride[1], 4);
  EXPECT_EQ(cube.stride[2], 1);
  const TensorView scalar = view_of(memory.data(), std::initializer_list<int64_t>{});
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_TRUE(TensorView().empty());
  EXPECT_TRUE(view_of(memory.data(), {0, 3}).empty());
  EXPECT_FALSE(cube.empty());
}

TEST(TensorView, RangesOfRowsAndColumns) {
  std::vector<float> memory(20);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  const TensorView m = view_of(memory.data(), {4, 5});
  const TensorView part = m.row_range(1, 2).col_range(3, 2);
  EXPECT_EQ(part.rows(), 2);
  EXPECT_EQ(part.cols(), 2);
  EXPECT_EQ(part.stride[0], 5);
  EXPECT_EQ(part.as<float>()[0], 8.0f);
  EXPECT_EQ(part.as<float>()[part.stride[0] + 1], 14.0f);
  EXPECT_EQ(m.row_range(4, 0).rows(), 0);
  EXPECT_EQ(m.col_range(5, 0).cols(), 0);
  EXPECT_EQ(TensorView(view_of(static_cast<float*>(nullptr), {0, 7})).row_range(0, 0).data, nullptr);
}

TEST(TensorView, RangesOutsideAreABug) {
  std::vector<float> memory(20);
  const TensorView m = view_of(memory.data(), {4, 5});
  EXPECT_THROW(m.row_range(3, 2), Fatal);
  EXPECT_THROW(m.row_range(-1, 2), Fatal);
  EXPECT_THROW(m.row_range(2, -1), Fatal);
  EXPECT_THROW(m.row_range(1, std::numeric_limits<int64_t>::max()), Fatal);
  EXPECT_THROW(m.col_range(0, 6), Fatal);
  EXPECT_THROW(m.col_range(6, 0), Fatal);
  EXPECT_THROW(view_of(memory.data(), {20}).col_range(0, 1), Fatal);
  EXPECT_THROW(view_of(memory.data(), {1, 2, 3, 4, 5}), Fatal);
  EXPECT_THROW(view_of(memory.data(), {-1}), Fatal);
}

TEST(TensorView, AnotherTypeIsABug) {
  std::vector<float> memory(4);
  const TensorView m = view_of(memory.data(), {4});
  EXPECT_EQ(m.as<float>(), memory.data());
  EXPECT_THROW(m.as<BF16>(), Fatal);
  EXPECT_THROW(m.as<int32_t>(), Fatal);
}

TEST(BFloat16, EveryValueSurvivesTheWayThere) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BF16 value{static_cast<uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(wide)))) << bits;
    } else {
      EXPECT_EQ(to_bf16(wide).bits, bits);
    }
  }
}

// bf16 keeps 7 bits behind the point: near 1 its steps are 2^-7.
TEST(BFloat16, RoundsToNearestEven) {
  const float step = 0x1p-7f;
  EXPECT_EQ(to_float(to_bf16(1 + 0.49f * step)), 1.0f);
  EXPECT_EQ(to_float(to_bf16(1 + 0.5f * step)), 1.0f) << "a tie goes to the even neighbour";
  EXPECT_EQ(to_float(to_bf16(1 + 0.51f * step)), 1 + step);
  EXPECT_EQ(to_float(to_bf16(1 + 1.5f * step)), 1 + 2 * step) << "a tie goes to the even neighbour";
  EXPECT_EQ(to_float(to_bf16(-1 - 1.5f * step)), -1 - 2 * step);
}

TEST(BFloat16, EndsOfTheFloats) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())), infinity);
  EXPECT_EQ(to_float(to_bf16(-infinity)), -infinity);
  EXPECT_TRUE(std::signbit(to_float(to_bf16(-0.0f))));
  for (const uint32_t nan :
       {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {  // payloads that rounding would lose
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(nan))))) << nan;
  }
}

}  // namespace
}  // namespace lockstep
