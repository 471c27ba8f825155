// The families with gated DeltaNet: what their configs say, and how their layers split over ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/models/blocks/gated_delta_net.h"
#include "tests/models/golden_configs.h"

namespace lockstep::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum planning::ModelShape::Ffn;

std::vector<std::string> kept(const ModelDescription& description, int index, int parts) {
  std::vector<std::string> lines;
  for (const CacheNeed& need : description.cache_needs({.attention = {index, parts}}))
    lines.push_back(fmt::format("{} {}: {} + {}", need.layer, need.what, need.values_per_token,
                                need.values_per_sequence));
  return lines;
}

// By hand, of 2 key heads of 16, 4 value heads of 16, 4 taps: 2 * 32 + 64 channels, of which 3 rows are kept.
TEST(HybridFamilies, KeepKeysAndValuesOrAState) {
  const auto whole = described(config_of("qwen3.5-moe"));
  EXPECT_THAT(
      kept(*whole, 0, 1),
      ElementsAre("0 window: 0 + 384", "0 recurrent: 0 + 1024", "1 window: 0 + 384", "1 recurrent: 0 + 1024",
                  "2 window: 0 + 384", "2 recurrent: 0 + 1024", "3 keys: 64 + 0", "3 values: 64 + 0"));
  // A quarter has one value head and a copy of the key head that it reads.
  EXPECT_THAT(
      kept(*whole, 1, 4),
      ElementsAre("0 window: 0 + 144", "0 recurrent: 0 + 256", "1 window: 0 + 144", "1 recurrent: 0 + 256",
                  "2 window: 0 + 144", "2 recurrent: 0 + 256", "3 keys: 32 + 0", "3 values: 32 + 0"));
}

TEST(HybridFamilies, HeadsOfAShard) {
  const GatedDeltaNetConfig config{.num_key_heads = 2, .num_value_heads = 6};
  struct Case {
    int index, parts;
    Range value, key;
    int first_in_group;
  };
  for (const Case& want :
       {Case{0, 1, {0, 6}, {0, 2}, 0}, Case{0, 2, {0, 3}, {0, 1}, 0}, Case{1, 2, {3, 6}, {1, 2}, 0},
        Case{1, 3, {2, 4}, {0, 2}, 2}, Case{5, 6, {5, 6}, {1, 2}, 2}}) {
    const DeltaHeads heads = heads_of(config, {want.index, want.parts});
    EXPECT_EQ(heads.value.begin, want.value.begin);
    EXPECT_EQ(heads.value.end, want.value.end);
    EXPECT_EQ(heads.key.begin, want.key.begin);
    EXPECT_EQ(heads.key.end, want.key.end);
    EXPECT_EQ(heads.first_in_group, want.first_in_group);
  }
  for (int index = 0; index < 8; ++index) {  // some of eight have none
    const DeltaHeads heads = heads_of(config, {index, 8});
    EXPECT_EQ(heads.key.size(), heads.value.size());
  }
}

TEST(HybridFamilies, LayersAreThoseThatTheConfigSays) {
  Json next = config_of("qwen3-next");
  EXPECT_THAT(described(next)->shape().layers, ElementsAre(kExperts, kDense, kExperts, kExperts));
  next.erase("layer_types");
  next["full_attention_interval"] = 3;
  std::vector<std::string> what;
  for (const CacheNeed& need : described(next)->cache_needs({})) what.push_back(need.what);
  EXPECT_THAT(what, ElementsAre("window", "recurrent", "window", "recurrent", "keys", "values", "window",
                                "recurrent"));
  next["layer_types"] = {"linear_attention", "full_attention"};
  EXPECT_THAT(refusal(next), HasSubstr("layer_types names 2 layers, num_hidden_layers is 4"));
  next["layer_types"] = {"linear_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(refusal(next), HasSubstr("layer_types \"sliding_attention\" is not handled"));
}

TEST(HybridFamilies, RefuseByNameWhatChangesTheMaths) {
  struct Case {
    const char* key;
    Json value;
  };
  const Case cases[] = {{"hidden_act", "gelu"},          {"attn_output_gate", false},
                        {"use_sliding_window", true},    {"linear_num_key_heads", 4},
                        {"linear_conv_kernel_dim", 0},   {"linear_value_head_dim", "wide"},
                        {"partial_rotary_factor", 0.05}, {"intermediate_size", nullptr}};
  for (const Case& one : cases) {
    Json next = config_of("qwen3-next");
    next.erase("rope_parameters");
    next[one.key] = one.value;
    EXPECT_THAT(refusal(next), HasSubstr(one.key));
  }
}

// A model that also sees describes its text in text_config, and what concerns all parts beside it.
TEST(HybridFamilies, TheTextPartOfAWholeModel) {
  Json whole = {{"model_type", "qwen3_5_moe"}, {"vision_config", {{"depth", 27}}}};
  whole["text_config"] = config_of("qwen3.5-moe");
  EXPECT_EQ(described(whole)->shape().hidden, 64);
  EXPECT_EQ(described(whole)->family(), "qwen3_5_moe");
  whole["quantization_config"] = {{"quant_method", "some"}};
  EXPECT_THAT(refusal(whole), HasSubstr("quantization_config"));
  whole["text_config"] = 7;
  EXPECT_THAT(refusal(whole), HasSubstr("text_config is 7, not an object"));
}

TEST(HybridFamilies, SlicesAreThereForAnyNumberOfShards) {
  for (const char* name : {"qwen3.5-moe", "qwen3-next"}) {
    const auto checkpoint = Checkpoint::open(folder(name));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const auto description = described(config_of(name));
    for (const int parts : {1, 2, 3, 5, 8}) {
      for (int index = 0; index < parts; ++index) {
        const Shard part{index, parts};
        const auto model = description->load(*checkpoint, {part, part, part, part, part, part});
        EXPECT_TRUE(model.ok()) << name << ": " << model.error().message;
      }
    }
  }
}

TEST(HybridFamilies, MissingAndMisshapenTensorsAreListed) {
  const auto checkpoint = Checkpoint::open(folder("qwen3-next"));
  Json next = config_of("qwen3-next");
  next["linear_value_head_dim"] = 24;
  const auto wrong = described(next)->load(*checkpoint, {});
  ASSERT_FALSE(wrong.ok());
  // 2 * (12 + 12 + 3 * 24 + 3 * 24) rows of 48.
  EXPECT_THAT(wrong.error().message,
              HasSubstr("layers.0.linear_attn.in_proj_qkvz.weight is [288, 48], expected [336, 48]"));
  EXPECT_THAT(wrong.error().message, HasSubstr("layers.0.linear_attn.norm.weight is [20], expected [24]"));
  Json other = config_of("qwen3-next");
  other["model_type"] = "qwen3_5_moe_text";
  const auto missing = described(other)->load(*checkpoint, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("model.layers.0.linear_attn.in_proj_qkv.weight is missing"));
}

}  // namespace
}  // namespace lockstep::models
