#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lockstep/base/file.h"
#include "lockstep/models/registry.h"
#include "tests/source_dir.h"

namespace lockstep::models {
namespace {

using ::testing::HasSubstr;

std::string folder(const std::string& name) { return std::string(LOCKSTEP_SOURCE_DIR) + "/" + name; }

Json config() {
  return parse_json(read_file(folder("models/tutor-deepseek-v3/config.json")).value()).value();
}

std::string refusal(const Json& changed) {
  const auto described = describe_config(changed);
  return described ? "" : described.error().message;
}

TEST(Describe, ReadsSizesLayersCacheAndStops) {
  const auto info = describe(folder("models/tutor-deepseek-v3"));
  ASSERT_TRUE(info.ok()) << info.error().message;
  const planning::ModelShape shape = info->description->shape();
  EXPECT_EQ(info->description->family(), "deepseek_v3");
  EXPECT_EQ(shape.hidden, 256);
  EXPECT_EQ(shape.num_experts, 16);
  EXPECT_EQ(shape.top_k, 4);
  using enum planning::ModelShape::Ffn;
  EXPECT_THAT(shape.layers, ::testing::ElementsAre(kDense, kExperts, kExperts, kExperts, kExperts));
  ASSERT_EQ(info->description->cache_needs({}).size(), 5u);
  EXPECT_EQ(info->description->cache_needs({})[0].values_per_token, 64 + 16);
  EXPECT_THAT(info->eos_token_ids, ::testing::ElementsAre(964));
  EXPECT_EQ(info->sampling.temperature, 0.0f);  // do_sample is false
}

TEST(Describe, RefusesByNameWhatChangesTheMaths) {
  const std::pair<const char*, Json> cases[] = {
      {"hidden_act", "gelu"},
      {"scoring_func", "softmax"},
      {"topk_method", "greedy"},
      {"attention_bias", true},
      {"quantization_config", Json{{"quant_method", "bitsandbytes"}}},
      {"rope_scaling", Json{{"type", "dynamic"}, {"factor", 2}}}};
  for (const auto& [key, value] : cases) {
    Json changed = config();
    if (std::string(key) == "rope_scaling") changed.erase("rope_parameters");
    changed[key] = value;
    EXPECT_THAT(refusal(changed), HasSubstr(std::string(key) == "rope_scaling" ? "dynamic" : key)) << key;
  }
}

TEST(Describe, CollectsEveryProblem) {
  Json changed = config();
  changed.erase("kv_lora_rank");
  changed["hidden_size"] = "many";
  changed["n_group"] = 3;
  changed["num_experts_per_tok"] = -1;
  const std::string message = refusal(changed);
  for (const char* key : {"kv_lora_rank is missing", "hidden_size is \"many\"", "n_group 3 does not divide",
                          "num_experts_per_tok is -1"})
    EXPECT_THAT(message, HasSubstr(key));
}

TEST(Describe, UnknownFamiliesAreNamedWithTheKnownOnes) {
  EXPECT_THAT(refusal(Json{{"model_type", "mamba9"}}),
              ::testing::AllOf(HasSubstr("mamba9"), HasSubstr("deepseek_v3")));
  EXPECT_THAT(refusal(Json::object()), HasSubstr("model_type \"\""));
  EXPECT_FALSE(describe("/nowhere/at/all").ok());
}

TEST(Load, ListsMissingAndMisshapenTensorsAtOnce) {
  Json changed = config();
  changed["num_hidden_layers"] = 7;  // layer 5 is the MTP module, layer 6 is not there
  changed["intermediate_size"] = 384;
  changed["vocab_size"] = 1000;
  const auto description = describe_config(changed);
  ASSERT_TRUE(description.ok()) << description.error().message;
  const auto checkpoint = Checkpoint::open(folder("models/tutor-deepseek-v3"));
  ASSERT_TRUE(checkpoint.ok());
  const auto model = (*description)->load(*checkpoint, {});
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, HasSubstr("lm_head.weight is [1024, 256], expected [1000, 256]"));
  EXPECT_THAT(model.error().message,
              HasSubstr("model.layers.0.mlp.gate_proj.weight is [512, 256], expected [384, 256]"));
  EXPECT_THAT(model.error().message, HasSubstr("…"));
}

TEST(Load, SlicesAreViewsOfTheFile) {
  const auto checkpoint = Checkpoint::open(folder("models/tutor-deepseek-v3"));
  const auto description = describe_config(config());
  for (int index = 0; index < 3; ++index) {
    const Shard third{index, 3};  // 8 heads, 16 experts, 512 and 128 wide: nothing divides
    const auto model = (*description)->load(*checkpoint, {third, third, third, third, third, third});
    EXPECT_TRUE(model.ok()) << model.error().message;
  }
}

}  // namespace
}  // namespace lockstep::models
