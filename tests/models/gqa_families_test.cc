// What the families with grouped-query attention read from their configs, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/golden_configs.h"

namespace lockstep::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum planning::ModelShape::Ffn;

Shards attention_shard(int index, int parts) { return {.attention = {index, parts}}; }

// Cached values a token of the first layer, keys and values together.
int64_t cached(const ModelDescription& description, int index, int parts) {
  const auto needs = description.cache_needs(attention_shard(index, parts));
  return needs.at(0).values_per_token + needs.at(1).values_per_token;
}

TEST(GqaFamilies, DenseModelsHaveNoExperts) {
  for (const char* name : {"llama", "qwen3"}) {
    const auto description = described(config_of(name));
    EXPECT_EQ(description->family(), name);
    EXPECT_EQ(description->context_length(), 2048);
    const planning::ModelShape shape = description->shape();
    EXPECT_EQ(shape.num_experts, 0);
    EXPECT_THAT(shape.layers, ElementsAre(kDense, kDense));
    EXPECT_EQ(shape.attention_params, 64 * 64 + 2 * 64 * 32 + 64 * 64);  // q, k and v, o
  }
}

TEST(GqaFamilies, ARankCachesTheHeadsThatItsQueriesRead) {
  const auto llama = described(config_of("llama"));  // 4 heads of 16 values, 2 key/value heads
  EXPECT_EQ(llama->cache_needs({}).size(), 4u);
  EXPECT_EQ(cached(*llama, 0, 1), 2 * 2 * 16);
  for (int index = 0; index < 2; ++index) EXPECT_EQ(cached(*llama, index, 2), 2 * 16);
  for (int index = 0; index < 4; ++index) EXPECT_EQ(cached(*llama, index, 4), 2 * 16);  // copies
  for (int index = 0; index < 8; ++index)  // every other rank has no head
    EXPECT_EQ(cached(*llama, index, 8), index % 2 == 0 ? 0 : 2 * 16);
  const auto qwen = described(config_of("qwen3-moe"));  // 8 heads, 2 key/value heads: 2, 3 and 3 heads
  EXPECT_EQ(cached(*qwen, 0, 3), 2 * 16);
  EXPECT_EQ(cached(*qwen, 1, 3), 2 * 2 * 16);  // heads 2, 3 and 4: of both groups
  EXPECT_EQ(cached(*qwen, 2, 3), 2 * 16);
}

TEST(GqaFamilies, LayersWithExpertsAreThoseThatTheConfigSays) {
  Json qwen = config_of("qwen3-moe");
  EXPECT_THAT(described(qwen)->shape().layers, ElementsAre(kExperts, kExperts, kExperts));
  qwen["decoder_sparse_step"] = 2;
  EXPECT_THAT(described(qwen)->shape().layers, ElementsAre(kDense, kExperts, kDense));
  qwen["decoder_sparse_step"] = 1;
  qwen["mlp_only_layers"] = {0, 2};
  EXPECT_THAT(described(qwen)->shape().layers, ElementsAre(kDense, kExperts, kDense));
  qwen["mlp_only_layers"] = {3};
  EXPECT_THAT(refusal(qwen), HasSubstr("mlp_only_layers names layer 3 of 3"));
  qwen["mlp_only_layers"] = "none";
  EXPECT_THAT(refusal(qwen), HasSubstr("mlp_only_layers is \"none\", not a list of integers"));

  Json glm = config_of("glm4-moe");
  EXPECT_THAT(described(glm)->shape().layers, ElementsAre(kDense, kExperts, kExperts));
  EXPECT_EQ(described(glm)->shape().shared_inter, 32);
  glm["first_k_dense_replace"] = 3;
  glm["n_shared_experts"] = 2;
  EXPECT_THAT(described(glm)->shape().layers, ElementsAre(kDense, kDense, kDense));
  EXPECT_EQ(described(glm)->shape().shared_inter, 64);
}

TEST(GqaFamilies, BothNamesOfTheNumberOfExpertsAreRead) {
  Json qwen = config_of("qwen3-moe");
  EXPECT_EQ(described(qwen)->shape().num_experts, 8);
  qwen["num_experts"] = 16;
  EXPECT_EQ(described(qwen)->shape().num_experts, 16);
  qwen.erase("num_experts");
  qwen.erase("num_local_experts");
  EXPECT_THAT(refusal(qwen), HasSubstr("num_local_experts is missing"));
}

// Qwen3's class takes 128 where head_dim is absent; the others hidden_size / num_attention_heads.
TEST(GqaFamilies, AnAbsentHeadDimIsThatOfTheFamily) {
  const std::pair<const char*, int> cases[] = {{"llama", 64 / 4}, {"qwen3", 128}, {"glm4-moe", 64 / 4}};
  for (const auto& [name, head_dim] : cases) {
    Json config = config_of(name);
    config.erase("head_dim");
    EXPECT_EQ(cached(*described(config), 0, 1), 2 * 2 * head_dim) << name;
  }
}

TEST(GqaFamilies, LlamaHasAsManyKeyValueHeadsAsHeadsWhereTheConfigSaysNothing) {
  Json llama = config_of("llama");
  llama.erase("num_key_value_heads");
  EXPECT_EQ(cached(*described(llama), 0, 1), 2 * 4 * 16);
  Json qwen = config_of("qwen3");
  qwen.erase("num_key_value_heads");
  EXPECT_THAT(refusal(qwen), HasSubstr("num_key_value_heads is missing"));
}

TEST(GqaFamilies, RefuseByNameWhatChangesTheMaths) {
  struct Case {
    const char* model;
    const char* key;
    Json value;
  };
  const Json unknown = {{"quant_method", "bitsandbytes"}};
  const Json dynamic = {{"rope_type", "dynamic"}, {"factor", 2}};
  const Case cases[] = {{"llama", "hidden_act", "gelu"},
                        {"llama", "mlp_bias", true},
                        {"llama", "sliding_window", 1024},
                        {"llama", "quantization_config", unknown},
                        {"llama", "partial_rotary_factor", 0.5},
                        {"llama", "num_key_value_heads", 3},
                        {"llama", "head_dim", 15},
                        {"qwen3", "hidden_act", "relu"},
                        {"qwen3", "quantization_config", unknown},
                        {"qwen3", "layer_types", {"full_attention", "sliding_attention"}},
                        {"qwen3-moe", "quantization_config", unknown},
                        {"qwen3-moe", "num_experts_per_tok", 9},
                        {"llama", "final_logit_softcapping", 30.0},
                        {"llama", "attn_logit_softcapping", 50.0},
                        {"qwen3", "embedding_multiplier", 12},
                        {"qwen3-moe", "layer_types", {"sliding_attention"}},
                        {"glm4-moe", "scoring_func", "softmax"},
                        {"glm4-moe", "topk_method", "greedy"},
                        {"glm4-moe", "quantization_config", unknown},
                        {"glm4-moe", "n_group", 3},
                        {"glm4-moe", "partial_rotary_factor", 0.2},
                        {"qwen3", "rope_parameters", dynamic}};
  for (const Case& one : cases) {
    Json config = config_of(one.model);
    EXPECT_EQ(refusal(config), "") << one.model;
    config[one.key] = one.value;
    if (std::string(one.key) == "partial_rotary_factor") config["rope_parameters"].erase(one.key);
    const bool is_rope = std::string(one.key) == "rope_parameters";
    const bool is_head = std::string(one.key) == "head_dim";
    EXPECT_THAT(refusal(config), HasSubstr(is_rope   ? "dynamic"
                                           : is_head ? "a head of 15"
                                                     : one.key))
        << one.model << " " << one.key;
  }
}

TEST(GqaFamilies, WindowsThatAreNotUsedAreNoReasonToRefuse) {
  Json qwen = config_of("qwen3");
  qwen["sliding_window"] = 128;
  EXPECT_EQ(refusal(qwen), "");  // use_sliding_window is false
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(refusal(qwen), "");  // layer_types lists no layer that slides
  qwen.erase("layer_types");
  EXPECT_THAT(refusal(qwen), HasSubstr("use_sliding_window true is handled only with layer_types"));
  Json llama = config_of("llama");
  llama["sliding_window"] = 4096;  // longer than the context
  EXPECT_EQ(refusal(llama), "");
}

TEST(GqaFamilies, SlicesAreThereForAnyNumberOfShards) {
  for (const char* name : {"llama", "qwen3", "qwen3-moe", "glm4-moe"}) {
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

// Biases are expected where attention_bias says so; the output has one in Llama and Qwen3, none in GLM-4-MoE.
TEST(GqaFamilies, MissingBiasesAreListed) {
  Json llama = config_of("llama");
  llama["attention_bias"] = true;
  const auto checkpoint = Checkpoint::open(folder("llama"));
  const auto first = described(llama)->load(*checkpoint, attention_shard(0, 2));
  ASSERT_FALSE(first.ok());
  for (const char* bias : {"q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"})
    EXPECT_THAT(first.error().message,
                HasSubstr(std::string("model.layers.0.self_attn.") + bias + " is missing"));
  const auto second = described(llama)->load(*checkpoint, attention_shard(1, 2));
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, ::testing::Not(HasSubstr("o_proj.bias")));  // owed once
}

}  // namespace
}  // namespace lockstep::models
