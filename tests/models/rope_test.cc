#include "lockstep/models/blocks/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::models {
namespace {

RopeConfig deepseek_v3() {
  return {.dim = 64,
          .base = 10000,
          .scaling = RopeConfig::Scaling::kYarn,
          .factor = 40,
          .beta_fast = 32,
          .beta_slow = 1,
          .original_length = 4096,
          .mscale = 1,
          .mscale_all_dim = 1};
}

TEST(Rope, PlainFrequenciesAreThoseOfThePaper) {
  const auto frequencies = inverse_frequencies({.dim = 8, .base = 10000});
  ASSERT_EQ(frequencies.size(), 4u);
  EXPECT_DOUBLE_EQ(frequencies[0], 1.0);
  EXPECT_NEAR(frequencies[1], 0.1, 1e-12);
  EXPECT_NEAR(frequencies[3], 0.001, 1e-12);
}

// DeepSeek-V3: pairs 0 to 10 are not scaled, 23 to 31 are divided by 40 (worked from its config.json).
TEST(Rope, YarnOfDeepseekV3LeavesFastPairsAndDividesSlowOnes) {
  const auto scaled = inverse_frequencies(deepseek_v3());
  const auto plain = inverse_frequencies({.dim = 64, .base = 10000});
  for (int pair = 0; pair <= 10; ++pair) EXPECT_DOUBLE_EQ(scaled[pair], plain[pair]) << pair;
  for (int pair = 11; pair <= 22; ++pair) {
    EXPECT_LT(scaled[pair], plain[pair]) << pair;
    EXPECT_GT(scaled[pair], plain[pair] / 40) << pair;
  }
  for (int pair = 23; pair < 32; ++pair) EXPECT_DOUBLE_EQ(scaled[pair], plain[pair] / 40) << pair;
}

// m(40, 1) = 0.1 ln 40 + 1 = 1.3688879, squared 1.8738542; with mscale = mscale_all_dim the tables keep
// factor 1.
TEST(Rope, YarnFactorSitsInTheSoftmaxScaleOrInTheTablesNeverInBoth) {
  EXPECT_NEAR(softmax_scale_factor(deepseek_v3()), 1.8738542, 1e-6);
  EXPECT_DOUBLE_EQ(cos_sin_factor(deepseek_v3()), 1.0);
  RopeConfig qwen = deepseek_v3();
  qwen.factor = 4;
  qwen.mscale = qwen.mscale_all_dim = 0;
  EXPECT_DOUBLE_EQ(softmax_scale_factor(qwen), 1.0);
  EXPECT_NEAR(cos_sin_factor(qwen), 1.138629, 1e-6);
  RopeConfig lite = deepseek_v3();
  lite.mscale = lite.mscale_all_dim = 0.707;
  EXPECT_NEAR(softmax_scale_factor(lite), 1.5896262, 1e-6);
}

// Llama 3.1: base 500000, factor 8, 8192 tokens. Pairs 0 to 28 are not scaled, 35 to 63 are divided by 8
// (worked from its config.json).
TEST(Rope, Llama3LeavesFastPairsAndDividesSlowOnes) {
  const auto scaled = inverse_frequencies({.dim = 128,
                                           .base = 500000,
                                           .scaling = RopeConfig::Scaling::kLlama3,
                                           .factor = 8,
                                           .low_freq = 1,
                                           .high_freq = 4,
                                           .original_length = 8192});
  const auto plain = inverse_frequencies({.dim = 128, .base = 500000});
  for (size_t pair = 0; pair <= 28; ++pair) EXPECT_DOUBLE_EQ(scaled[pair], plain[pair]) << pair;
  for (size_t pair = 29; pair <= 34; ++pair) {
    EXPECT_LT(scaled[pair], plain[pair]) << pair;
    EXPECT_GT(scaled[pair], plain[pair] / 8) << pair;
  }
  for (size_t pair = 35; pair < 64; ++pair) EXPECT_DOUBLE_EQ(scaled[pair], plain[pair] / 8) << pair;
}

// gpt-oss: bounds are not rounded to whole pairs. They lie at 8.0928 and 17.3980 (the reference's numbers).
TEST(Rope, YarnBoundsMayBeExact) {
  const auto read = [](const char* text) {
    const Json json = parse_json(text).value();
    ConfigReader reader(json);
    const RopeConfig config = read_rope(reader, 64, 150000);
    EXPECT_TRUE(reader.status().ok());
    return config;
  };
  const RopeConfig exact = read(
      R"({"rope_scaling": {"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "truncate": false}})");
  EXPECT_DOUBLE_EQ(exact.base, 150000);
  EXPECT_NEAR(cos_sin_factor(exact), 1.3465736, 1e-7);
  const auto scaled = inverse_frequencies(exact), plain = inverse_frequencies({.dim = 64, .base = 150000});
  for (size_t pair = 0; pair <= 8; ++pair) EXPECT_DOUBLE_EQ(scaled[pair], plain[pair]) << pair;
  for (size_t pair = 9; pair <= 17; ++pair) {
    const double part = (static_cast<double>(pair) - 8.0928) / (17.3980 - 8.0928);
    EXPECT_NEAR(scaled[pair] / plain[pair], 1 - part + part / 32, 1e-5) << pair;
  }
  for (size_t pair = 18; pair < 32; ++pair) EXPECT_DOUBLE_EQ(scaled[pair], plain[pair] / 32) << pair;
}

TEST(Rope, LinearDividesEveryFrequency) {
  const RopeConfig config{.dim = 8, .scaling = RopeConfig::Scaling::kLinear, .factor = 4};
  const auto scaled = inverse_frequencies(config), plain = inverse_frequencies({.dim = 8});
  for (size_t pair = 0; pair < 4; ++pair) EXPECT_DOUBLE_EQ(scaled[pair], plain[pair] / 4);
  EXPECT_DOUBLE_EQ(cos_sin_factor(config), 1.0);
  EXPECT_DOUBLE_EQ(softmax_scale_factor(config), 1.0);
}

// The exponent is that of the rotated part, not of the head; the dict goes before the key beside it.
TEST(Rope, APartOfTheHeadMayBeRotated) {
  const auto read = [](const char* text, int head_dim, double absent) {
    const Json json = parse_json(text).value();
    ConfigReader reader(json);
    const RopeConfig config = read_partial_rope(reader, head_dim, absent);
    return reader.status() ? config.dim : -1;
  };
  EXPECT_EQ(read("{}", 128, 0.5), 64);
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0.25})", 256, 0.5), 64);
  EXPECT_EQ(
      read(R"({"partial_rotary_factor": 1.0, "rope_parameters": {"partial_rotary_factor": 0.25}})", 64, 1),
      16);
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0.3})", 16, 1), 4);
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0.2})", 16, 1), -1);  // three values make no pairs
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0})", 16, 1), -1);
}

TEST(Rope, TablesHoldCosineAndSineOfPositionTimesFrequency) {
  const RopeTables tables({.dim = 4, .base = 100}, 11);
  EXPECT_EQ(tables.cos().rows(), 11);
  EXPECT_FLOAT_EQ(tables.cos().as<float>()[10 * 2 + 1], static_cast<float>(std::cos(10 * 0.1)));
  EXPECT_FLOAT_EQ(tables.sin().as<float>()[10 * 2], static_cast<float>(std::sin(10.0)));
}

TEST(Rope, RanksShareTheTables) {
  const SharedRopeTables shared({.dim = 4, .base = 100}, 11);
  auto first = shared.get();
  EXPECT_EQ(shared.get(), first);
  EXPECT_EQ(first->cos().rows(), 11);
  const std::weak_ptr<const RopeTables> watched = first;
  first.reset();
  EXPECT_TRUE(watched.expired());  // nobody holds them
  EXPECT_EQ(shared.get()->sin().rows(), 11);
}

TEST(Rope, BothSpellingsAreRead) {
  const auto read = [](const char* text) {
    const Json json = parse_json(text).value();
    ConfigReader reader(json);
    const RopeConfig config = read_rope(reader, 64);
    EXPECT_TRUE(reader.status().ok());
    return config;
  };
  const RopeConfig old_style = read(
      R"({"rope_theta": 5000, "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}})");
  const RopeConfig new_style = read(
      R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 5000, "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}})");
  EXPECT_EQ(inverse_frequencies(old_style), inverse_frequencies(new_style));
  EXPECT_DOUBLE_EQ(old_style.base, 5000);
  EXPECT_EQ(read(R"({"rope_theta": 10000, "rope_scaling": null})").scaling, RopeConfig::Scaling::kNone);
}

TEST(Rope, ScalingByKindOfLayerIsRefused) {
  const Json json = parse_json(R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}})").value();
  ConfigReader reader(json);
  read_rope(reader, 64);
  ASSERT_FALSE(reader.status().ok());
  EXPECT_NE(reader.status().error().message.find("full_attention"), std::string::npos);
}

TEST(Rope, OtherScalingsAreRefusedByName) {
  const Json json = parse_json(R"({"rope_scaling": {"type": "longrope", "factor": 4}})").value();
  ConfigReader reader(json);
  read_rope(reader, 64);
  ASSERT_FALSE(reader.status().ok());
  EXPECT_NE(reader.status().error().message.find("longrope"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::models
