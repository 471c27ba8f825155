// What the families with experts read from their configs beyond what gqa_families_test.cc looks at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/golden_configs.h"

namespace lockstep::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using enum planning::ModelShape::Ffn;

constexpr const char* kFamilies[] = {"mixtral",     "qwen2-moe",        "gpt-oss",
                                     "deepseek-v2", "deepseek-v2-lite", "deepseek-v32"};

TEST(MoeFamilies, AreNamedAsTheirConfigsName) {
  for (const char* name : kFamilies) {
    const Json config = config_of(name);
    EXPECT_EQ(described(config)->family(), config.at("model_type").get<std::string>());
  }
}

TEST(MoeFamilies, LayersWithExpertsAreThoseThatTheConfigSays) {
  EXPECT_THAT(described(config_of("mixtral"))->shape().layers, ElementsAre(kExperts, kExperts));
  EXPECT_THAT(described(config_of("gpt-oss"))->shape().layers,
              ElementsAre(kExperts, kExperts, kExperts, kExperts));
  EXPECT_THAT(described(config_of("deepseek-v2"))->shape().layers, ElementsAre(kDense, kExperts, kExperts));
  Json qwen = config_of("qwen2-moe");
  EXPECT_THAT(described(qwen)->shape().layers, ElementsAre(kDense, kExperts, kDense, kExperts));
  EXPECT_EQ(described(qwen)->shape().shared_inter, 40);
  qwen["mlp_only_layers"] = {1};
  EXPECT_THAT(described(qwen)->shape().layers, ElementsAre(kDense, kDense, kDense, kExperts));
  EXPECT_EQ(described(config_of("deepseek-v2-lite"))->shape().shared_inter, 2 * 24);
}

TEST(MoeFamilies, RefuseByNameWhatChangesTheMaths) {
  struct Case {
    const char* model;
    const char* key;
    Json value;
  };
  const Case cases[] = {{"mixtral", "hidden_act", "gelu"},
                        {"mixtral", "num_experts_per_tok", 9},
                        {"mixtral", "num_local_experts", 0},
                        {"mixtral", "sliding_window", "wide"},
                        {"qwen2-moe", "shared_expert_intermediate_size", nullptr},
                        {"qwen2-moe", "layer_types", {"chunked_attention"}},
                        {"qwen2-moe", "sliding_window", nullptr},
                        {"gpt-oss", "hidden_act", "gelu"},
                        {"gpt-oss", "rope_parameters", nullptr},
                        {"gpt-oss", "swiglu_limit", -1},
                        {"gpt-oss", "layer_types", {"full_attention"}},
                        {"deepseek-v2", "norm_topk_prob", true},
                        {"deepseek-v2", "topk_method", "noaux_tc"},
                        {"deepseek-v2", "scoring_func", "sigmoid"},
                        {"deepseek-v2", "attention_bias", true},
                        {"deepseek-v2", "mlp_bias", true},
                        {"deepseek-v2", "n_group", 3},
                        {"deepseek-v32", "scoring_func", "softmax"},
                        {"deepseek-v32", "index_topk", 0},
                        {"deepseek-v32", "rope_interleave", false}};
  for (const Case& one : cases) {
    Json config = config_of(one.model);
    EXPECT_EQ(refusal(config), "") << one.model;
    config[one.key] = one.value;
    const bool is_window = std::string(one.key) == "sliding_window" && one.value.is_null();
    const bool is_rope = std::string(one.key) == "rope_parameters";
    EXPECT_THAT(refusal(config), HasSubstr(is_rope     ? "rope_scaling"
                                           : is_window ? "layer_types"
                                                       : one.key))
        << one.model << " " << one.key;
  }
}

TEST(MoeFamilies, DenseAttentionInPlaceOfAnIndexerSaysWhereItDiffers) {
  Json config = config_of("deepseek-v32");
  EXPECT_THAT(described(config)->notes(),
              ElementsAre(AllOf(HasSubstr("up to 256 tokens"), HasSubstr("--context-length 256"))));
  const auto checkpoint = Checkpoint::open(folder("deepseek-v32"));
  std::vector<std::string> left_aside;
  WeightSource source(*checkpoint);
  source.purpose = WeightSource::Purpose::kInspect;
  source.left_aside = &left_aside;
  ASSERT_TRUE(described(config)->load(source, {}).ok());
  EXPECT_THAT(left_aside, ElementsAre(HasSubstr("15 tensors of the file are left aside: an indexer")));
  config["index_topk"] = 512;  // as many as the context has: nothing differs
  EXPECT_THAT(described(config)->notes(), IsEmpty());
  for (const char* name : {"deepseek-v2", "mixtral", "gpt-oss"})
    EXPECT_THAT(described(config_of(name))->notes(), IsEmpty()) << name;
}

TEST(MoeFamilies, SlicesAreThereForAnyNumberOfShards) {
  for (const char* name : kFamilies) {
    const auto checkpoint = Checkpoint::open(folder(name));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const auto description = described(config_of(name));
    for (const int parts : {1, 3, 5, 8}) {
      for (int index = 0; index < parts; ++index) {
        const Shard shard{index, parts};
        for (const Shards& shards :
             {Shards{shard, shard, shard, {}, shard, shard}, Shards{shard, shard, {}, shard, shard, shard}}) {
          const auto model = description->load(*checkpoint, shards);
          EXPECT_TRUE(model.ok()) << name << ": " << model.error().message;
        }
      }
    }
  }
}

TEST(MoeFamilies, MissingTensorsAreNamedAsTheFamilyNamesThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"mixtral", "model.layers.2.block_sparse_moe.experts.0.w3.weight is missing"},
      {"qwen2-moe", "model.layers.4.self_attn.q_proj.bias is missing"},
      {"gpt-oss", "model.layers.4.self_attn.sinks is missing"},
      {"deepseek-v2-lite", "model.layers.3.self_attn.q_proj.weight is missing"}};
  for (const auto& [name, missing] : cases) {
    Json config = config_of(name);
    const int layers = config.at("num_hidden_layers");
    config["num_hidden_layers"] = std::string(name) == "qwen2-moe" ? layers + 2 : layers + 1;
    config.erase("layer_types");
    config["use_sliding_window"] = false;
    const auto checkpoint = Checkpoint::open(folder(name));
    const auto model = described(config)->load(*checkpoint, {});
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_THAT(model.error().message, AllOf(HasSubstr(missing), Not(HasSubstr("layers.0."))));
  }
}

}  // namespace
}  // namespace lockstep::models
