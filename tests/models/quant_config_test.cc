// What quantization_config may say, in the words of published checkpoints, and what is refused by name.
#include "lockstep/models/quantization/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::models {
namespace {

using ::testing::HasSubstr;
using Method = QuantConfig::Method;

Json config_with(const std::string& quantization) {
  return parse_json(R"({"quantization_config":)" + quantization + "}").value();
}

QuantConfig read(const std::string& quantization) {
  const Json json = config_with(quantization);
  ConfigReader reader(json);
  QuantConfig config = read_quantization(reader);
  EXPECT_TRUE(reader.status().ok()) << reader.status().error().message;
  return config;
}

std::string refusal(const std::string& quantization) {
  const Json json = config_with(quantization);
  ConfigReader reader(json);
  read_quantization(reader);
  const Status status = reader.status();
  return status ? "" : status.error().message;
}

std::string compressed(const std::string& weights) {
  return R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"targets":["Linear"],"weights":)" +
         weights + R"(}},"ignore":["lm_head","re:.*mlp\\.gate$"]})";
}

TEST(QuantConfig, Fp8AsInDeepSeekV3) {
  const QuantConfig config = read(
      R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8","weight_block_size":[128,128]})");
  EXPECT_EQ(config.method, Method::kFp8);
  EXPECT_EQ(config.block_rows, 128);
  EXPECT_EQ(config.block_cols, 128);
  EXPECT_EQ(block_width(config), 128);
  EXPECT_DOUBLE_EQ(bytes_per_weight(config), 1 + 4.0 / (128 * 128));  // a factor a block
}

TEST(QuantConfig, ModulesThatAreLeftAlone) {
  const QuantConfig fp8 =
      read(R"({"quant_method":"fp8","modules_to_not_convert":["lm_head","model.layers.0","mlp.gate"]})");
  EXPECT_TRUE(fp8.ignores("lm_head"));
  EXPECT_TRUE(fp8.ignores("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(fp8.ignores("model.layers.01.self_attn.q_proj"));
  EXPECT_TRUE(fp8.ignores("model.layers.7.mlp.gate"));
  EXPECT_FALSE(fp8.ignores("model.layers.7.mlp.gate_proj"));
  const QuantConfig wild = read(
      R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head","model.layers.*.self_attn*"]})");
  EXPECT_TRUE(wild.ignores("model.layers.12.self_attn.q_proj"));
  EXPECT_FALSE(wild.ignores("model.layers.12.mlp.up_proj"));
  const QuantConfig regex = read(compressed(R"({"num_bits":8,"type":"int","strategy":"channel"})"));
  EXPECT_TRUE(regex.ignores("model.layers.3.mlp.gate"));
  EXPECT_FALSE(regex.ignores("model.layers.3.mlp.gate_proj"));
  EXPECT_TRUE(regex.ignores("lm_head"));
}

TEST(QuantConfig, ModelOptMayKeepItsSettingsOneLevelDeeper) {
  const QuantConfig config = read(
      R"({"quant_method":"modelopt","producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4",
          "kv_cache_quant_algo":"FP8","group_size":16,"exclude_modules":["lm_head"]}})");
  EXPECT_EQ(config.method, Method::kModelOpt);
  EXPECT_TRUE(config.ignores("lm_head"));
  EXPECT_EQ(block_width(config), 16);
}

TEST(QuantConfig, GroupsOfCompressedTensors) {
  const QuantConfig config = read(
      R"({"quant_method":"compressed-tensors","config_groups":{
          "group_0":{"targets":["re:.*experts.*"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":64}},
          "group_1":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":[128,64]}}}})");
  const QuantConfig::Group* experts = config.group_of("model.layers.3.mlp.experts.7.up_proj");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->bits, 4);
  EXPECT_EQ(experts->group_size, 64);
  const QuantConfig::Group* others = config.group_of("model.layers.3.self_attn.o_proj");
  ASSERT_NE(others, nullptr);
  EXPECT_EQ(others->block_cols, 64);
}

TEST(QuantConfig, GptqAndAwq) {
  const QuantConfig gptq =
      read(R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":true,"sym":false})");
  EXPECT_EQ(gptq.zeros, QuantConfig::Zeros::kLessOne);
  EXPECT_EQ(gptq.group_size, 128);
  EXPECT_EQ(read(R"({"quant_method":"gptq","bits":8,"group_size":-1,"checkpoint_format":"gptq_v2"})").zeros,
            QuantConfig::Zeros::kAsStored);
  EXPECT_EQ(read(R"({"quant_method":"awq","bits":4,"group_size":64,"version":"GEMM","zero_point":true})")
                .group_size,
            64);
}

TEST(QuantConfig, WhatIsNotHandledIsRefusedByName) {
  EXPECT_THAT(refusal(R"({"quant_method":"bitsandbytes"})"), HasSubstr("\"bitsandbytes\" is not handled"));
  EXPECT_THAT(refusal("{}"), HasSubstr("quant_method \"\" is not handled"));
  EXPECT_THAT(refusal("[]"), HasSubstr("quantization_config is [], not an object"));
  EXPECT_THAT(refusal(R"({"quant_method":"fp8","fmt":"e5m2"})"), HasSubstr("fmt \"e5m2\" is not handled"));
  EXPECT_THAT(refusal(R"({"quant_method":"fp8","weight_block_size":[0,128]})"),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(refusal(R"({"quant_method":"fp8","weight_block_size":[128]})"), HasSubstr("weight_block_size"));
  EXPECT_THAT(refusal(R"({"quant_method":"modelopt","quant_algo":"W4A8_AWQ"})"), HasSubstr("W4A8_AWQ"));
  EXPECT_THAT(refusal(R"({"quant_method":"gptq","bits":3,"group_size":128})"), HasSubstr("bits 3"));
  EXPECT_THAT(refusal(R"({"quant_method":"awq","bits":8,"group_size":128})"), HasSubstr("bits 8"));
  EXPECT_THAT(refusal(R"({"quant_method":"gptq","bits":4,"group_size":12})"), HasSubstr("group_size 12"));
  EXPECT_THAT(refusal(R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})"),
              HasSubstr("marlin"));
  EXPECT_THAT(refusal(R"({"quant_method":"awq","version":"gemv"})"), HasSubstr("gemv"));
  EXPECT_THAT(refusal(R"({"quant_method":"gptq","bits":4,"dynamic":{"+:.*down.*":{"bits":8}}})"),
              HasSubstr("dynamic gives modules settings of their own"));
  EXPECT_THAT(refusal(R"({"quant_method":"compressed-tensors"})"), HasSubstr("config_groups"));
  EXPECT_THAT(refusal(R"({"quant_method":"compressed-tensors","config_groups":{"a":7}})"),
              HasSubstr("config_groups"));
  EXPECT_THAT(refusal(compressed(R"({"num_bits":2,"strategy":"channel"})")), HasSubstr("num_bits 2"));
  EXPECT_THAT(refusal(compressed(R"({"num_bits":4,"strategy":"attn_head"})")), HasSubstr("attn_head"));
  EXPECT_THAT(refusal(compressed(R"({"num_bits":4,"strategy":"group"})")),
              HasSubstr("group_size is missing"));
  EXPECT_THAT(refusal(compressed(R"({"num_bits":8,"strategy":"block","block_structure":[1,-1]})")),
              HasSubstr("block_structure"));
  EXPECT_THAT(
      refusal(
          R"({"quant_method":"compressed-tensors","config_groups":{"a":{"targets":["Linear"],"weights":{}}},
                         "sparsity_config":{"format":"sparse-24"}})"),
      HasSubstr("sparsity_config"));
}

TEST(NamePattern, HostilePatternsCostLittle) {
  const auto pattern = NamePattern::parse("(a+)+$", NamePattern::Dialect::kRegex);
  ASSERT_TRUE(pattern.ok());
  EXPECT_FALSE(pattern->matches(std::string(64, 'a') + "b"));  // gives up at the limit
  EXPECT_FALSE(NamePattern::parse("(", NamePattern::Dialect::kRegex).ok());
  EXPECT_FALSE(NamePattern::parse(std::string(5000, 'a'), NamePattern::Dialect::kModule).ok());
  EXPECT_FALSE(NamePattern::parse("", NamePattern::Dialect::kModule)->matches("lm_head"));
  const auto wild = NamePattern::parse("a.b*[c]", NamePattern::Dialect::kWildcards);
  ASSERT_TRUE(wild.ok());
  EXPECT_TRUE(wild->matches("a.bxx[c]"));
  EXPECT_FALSE(wild->matches("aqbxx[c]"));
}

}  // namespace
}  // namespace lockstep::models
