// What the reader of weights copies because no kernel reads it as it is stored.
#include "lockstep/models/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tensors/safetensors_file.h"

namespace lockstep::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "bias" bf16 [1, 3] = 1.5, -2, 0.10009765625, "flat" the same as [3], and "both" f32 [1, 2, 4] = 0 … 7.
class StoredWeights : public ::testing::Test {
 protected:
  StoredWeights() {
    std::string data;
    for (const float value : {1.5f, -2.0f, 0.10009765625f, 1.5f, -2.0f, 0.10009765625f}) {
      const uint16_t bits = to_bf16(value).bits;
      data.append(reinterpret_cast<const char*>(&bits), sizeof bits);
    }
    data.append(4, '\0');
    for (int i = 0; i < 8; ++i) {
      const auto value = static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    folder_.write("model.safetensors",
                  safetensors(R"({"bias":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]},)"
                              R"("flat":{"dtype":"BF16","shape":[3],"data_offsets":[6,12]},)"
                              R"("pad":{"dtype":"U8","shape":[4],"data_offsets":[12,16]},)"
                              R"("both":{"dtype":"F32","shape":[1,2,4],"data_offsets":[16,48]}})",
                              data));
    auto opened = Checkpoint::open(folder_.path());
    if (!opened) throw std::runtime_error(opened.error().message);
    checkpoint_.emplace(*std::move(opened));
  }

  const Checkpoint& checkpoint() const { return *checkpoint_; }

 private:
  TempFolder folder_;
  std::optional<Checkpoint> checkpoint_;
};

std::vector<float> values_of(const TensorView& view) {
  const float* first = view.as<float>();
  return {first, first + view.num_elements()};
}

// Published checkpoints of DeepSeek's router hold its bias as either.
TEST_F(StoredWeights, WhatMayNotBeRoundedIsWidened) {
  WeightReader reader(checkpoint());
  const TensorView bias = reader.f32_vector("flat", 3);
  ASSERT_TRUE(reader.status().ok()) << reader.status().error().message;
  EXPECT_EQ(reader.memory()->bytes(), 3 * sizeof(float));
  EXPECT_EQ(bias.dtype, DType::kF32);
  EXPECT_THAT(values_of(bias), ElementsAre(1.5f, -2.0f, 0.10009765625f));
}

TEST_F(StoredWeights, ColumnsInTurnsBecomeRows) {
  WeightReader reader(checkpoint());
  const auto rows_of = [&](Range keep, Range inputs, const Every& pick) {
    std::vector<std::vector<float>> found;
    for (const WeightView& one : reader.transposed("both", 1, 2, 4, keep, inputs, pick))
      found.push_back(values_of(one.plain));
    return found;
  };
  EXPECT_THAT(rows_of({0, 1}, {0, 2}, {0, 2, 2}), ElementsAre(ElementsAre(0, 4, 2, 6)));
  EXPECT_THAT(rows_of({0, 1}, {0, 2}, {1, 2, 2}), ElementsAre(ElementsAre(1, 5, 3, 7)));
  EXPECT_THAT(rows_of({0, 1}, {1, 2}, {0, 1, 4}), ElementsAre(ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(rows_of({0, 1}, {0, 2}, {4, 2, 0}), ElementsAre(ElementsAre()));  // a rank without a slice
  EXPECT_THAT(rows_of({0, 0}, {0, 2}, {0, 2, 2}), ElementsAre());               // or without an expert
  const auto picked = reader.vectors("bias", 1, 3, {0, 1}, {0, 2, 2});
  ASSERT_EQ(picked.size(), 1u);
  ASSERT_EQ(picked[0].dtype, DType::kBF16);
  EXPECT_EQ(picked[0].shape[0], 2);
  EXPECT_EQ(to_float(picked[0].as<BF16>()[0]), 1.5f);
  EXPECT_EQ(to_float(picked[0].as<BF16>()[1]), 0.10009765625f);
}

TEST_F(StoredWeights, WhatIsMissingStaysEmptyAndIsNamed) {
  WeightReader reader(checkpoint());
  EXPECT_TRUE(reader.transposed("none", 1, 2, 4, {0, 1}, {0, 2}, {0, 2, 2}).empty());
  EXPECT_EQ(reader.f32_vector("pad", 4).data, nullptr);
  ASSERT_FALSE(reader.status().ok());
  EXPECT_THAT(reader.status().error().message, HasSubstr("none is missing"));
  EXPECT_THAT(reader.status().error().message, HasSubstr("pad is u8"));
  EXPECT_EQ(reader.memory()->bytes(), 0u);
}

}  // namespace
}  // namespace lockstep::models
