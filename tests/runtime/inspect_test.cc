// What doctor finds out about folders, and that a plan refuses what a start refuses.
#include "lockstep/runtime/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "tests/source_dir.h"
#include "tests/tensors/safetensors_file.h"

namespace lockstep::runtime {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const MachineFacts kMachine = {.num_cores = 4, .memory_bytes = uint64_t{8} << 30};

std::string in_tree(const std::string& path) { return std::string(LOCKSTEP_SOURCE_DIR) + "/" + path; }

EngineConfig at(const std::string& folder) { return {.model_directory = folder}; }

// Sizes of published models; the totals are those of their makers, as far as these give digits.
struct Published {
  const char* config;
  double total, active;
};

TEST(Inspect, CountsTheParametersOfPublishedModels) {
  const Published published[] = {
      {R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
           "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
           "moe_intermediate_size": 768, "intermediate_size": 6144, "vocab_size": 151936,
           "max_position_embeddings": 40960, "norm_topk_prob": true})",
       30.53e9, 3.35e9},
      {R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
           "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
           "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
           "first_k_dense_replace": 3, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
           "n_group": 8, "topk_group": 4, "vocab_size": 129280, "max_position_embeddings": 163840})",
       671.03e9, 37.55e9},
      {R"({"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
           "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
           "v_head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
           "first_k_dense_replace": 1, "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
           "vocab_size": 102400, "max_position_embeddings": 163840})",
       15.71e9, 2.66e9}};
  for (const Published& model : published) {
    TempFolder folder;
    folder.write("config.json", model.config);
    const Inspection found = inspect(at(folder.path()), kMachine);
    ASSERT_TRUE(found.model.has_value()) << found.faults.front();
    EXPECT_NEAR(found.model->total_parameters, model.total, 0.006e9) << found.model->family;
    EXPECT_NEAR(found.model->active_parameters, model.active, 0.006e9) << found.model->family;
    EXPECT_THAT(found.notes, Contains(HasSubstr("no weights in the folder")));
    EXPECT_THAT(found.faults, IsEmpty());
  }
}

TEST(Inspect, AFolderThatIsWholeHasNoFaults) {
  const Inspection found = inspect(at(in_tree("models/tutor-deepseek-v3")), kMachine);
  EXPECT_THAT(found.faults, IsEmpty());
  EXPECT_EQ(found.model->family, "deepseek_v3");
  EXPECT_EQ(found.architecture, "DeepseekV3ForCausalLM");
  ASSERT_TRUE(found.weights.has_value());
  EXPECT_GT(found.weights->bytes_by_type.at("bf16"), 0u);
  ASSERT_TRUE(found.needs.has_value());
  EXPECT_EQ(found.needs->cache_bytes_per_token, 5 * (64 + 16) * 4);  // layers, latent and key, f32
  EngineConfig narrow = at(in_tree("models/tutor-deepseek-v3"));
  narrow.parallel.tp_size = 4;
  narrow.cache_type = CacheType::kBF16;
  const Inspection four = inspect(narrow, kMachine);
  EXPECT_EQ(four.needs->num_ranks, 4);
  EXPECT_EQ(four.needs->cache_bytes_per_token, 5 * (64 + 16) * 2);  // a latent is not split
  EXPECT_LT(four.needs->weight_bytes_per_rank, found.needs->weight_bytes_per_rank / 2);
}

TEST(Inspect, EveryGoldenCheckpointWouldRun) {
  for (const char* name : {"gpt-oss", "mixtral", "qwen2-moe", "deepseek-v2", "deepseek-v2-lite",
                           "deepseek-v32", "deepseek-v3", "glm4-moe", "qwen3-moe", "qwen3", "llama"}) {
    const Inspection found = inspect(at(in_tree(std::string("tests/golden/") + name)), kMachine);
    EXPECT_THAT(found.faults, IsEmpty()) << name;
    EXPECT_TRUE(found.needs.has_value()) << name;
  }
}

// A config that is refused, a tensor that is missing and a stop that is no id come in one report.
TEST(Inspect, EveryFaultIsListedAtOnce) {
  TempFolder folder;
  const std::string from = in_tree("tests/golden/qwen3/");
  Json config = parse_json(read_file(from + "config.json").value()).value();
  config["hidden_act"] = "gelu";
  config["final_logit_softcapping"] = 30;
  folder.write("config.json", to_text(config));
  folder.write("model.safetensors", "cut off");
  Inspection found = inspect(at(folder.path()), kMachine);
  EXPECT_FALSE(found.model.has_value());
  EXPECT_THAT(found.faults, ElementsAre(AllOf(HasSubstr("hidden_act"), HasSubstr("final_logit_softcapping")),
                                        HasSubstr("model.safetensors")));

  config = parse_json(read_file(from + "config.json").value()).value();
  config["num_hidden_layers"] = 3;
  config.erase("layer_types");
  folder.write("config.json", to_text(config));
  folder.write("model.safetensors", read_file(from + "model.safetensors").value());
  EngineConfig impossible = at(folder.path());
  impossible.parallel.dp_size = 2;  // without --enable-dp-attention
  found = inspect(impossible, kMachine);
  EXPECT_THAT(found.faults,
              ElementsAre(HasSubstr("--dp-size"), HasSubstr("model.layers.2.mlp.up_proj.weight")));
  EXPECT_FALSE(found.needs.has_value());

  const Inspection nothing = inspect(at("/nowhere/at/all"), kMachine);
  EXPECT_THAT(nothing.faults, ElementsAre(HasSubstr("/nowhere/at/all/config.json")));
}

TEST(Inspect, SaysWhatGenerationConfigAsksForAndNobodyDoes) {
  TempFolder folder;
  folder.write("config.json", read_file(in_tree("tests/golden/qwen3/config.json")).value());
  folder.write("generation_config.json",
               R"({"eos_token_id": [2, 999999], "temperature": 0.6, "num_beams": 4})");
  const Inspection found = inspect(at(folder.path()), kMachine);
  EXPECT_THAT(found.faults, IsEmpty());
  EXPECT_THAT(found.notes, Contains(HasSubstr("num_beams 4 is not applied")));
  EXPECT_THAT(found.notes, Contains(HasSubstr("temperature is not applied")));
  EXPECT_THAT(found.notes, Contains(HasSubstr("eos_token_id 999999 is outside the vocabulary of 256")));
}

TEST(Inspect, RefusesWhatGenerationConfigCannotMean) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"eos_token_id": -1})", "eos_token_id holds -1"},
      {R"({"eos_token_id": [2, "</s>"]})", "eos_token_id holds \"</s>\""},
      {R"({"eos_token_id": 1.5})", "eos_token_id holds 1.5"},
      {R"({"temperature": -0.5})", "temperature is -0.5"},
      {R"({"do_sample": true, "top_p": 7})", "top_p is 7"},
      {R"({"top_k": "many"})", "top_k is \"many\""}};
  for (const auto& [text, why] : cases) {
    TempFolder folder;
    folder.write("config.json", read_file(in_tree("tests/golden/qwen3/config.json")).value());
    folder.write("generation_config.json", text);
    const Inspection found = inspect(at(folder.path()), kMachine);
    EXPECT_THAT(found.faults, ElementsAre(AllOf(HasSubstr("generation_config.json"), HasSubstr(why))))
        << text;
  }
}

TEST(Plan, RefusesTheCapacityThatAStartRefuses) {
  const EngineConfig good = at(in_tree("models/tutor-deepseek-v3"));
  EXPECT_TRUE(plan_engine(good).ok());
  const auto refused = [&](auto change) {
    EngineConfig config = good;
    change(config);
    const auto planned = plan_engine(config);
    const auto started = start_engine(config);
    EXPECT_FALSE(planned.ok());
    EXPECT_FALSE(started.ok());
    if (planned.ok() || started.ok()) return std::string();
    EXPECT_EQ(planned.error().message, started.error().message);
    return planned.error().field;
  };
  EXPECT_EQ(refused([](EngineConfig& c) { c.page_size = 0; }), "--page-size");
  EXPECT_EQ(refused([](EngineConfig& c) { c.mem_fraction_static = 1.5; }), "--mem-fraction-static");
  EXPECT_EQ(refused([](EngineConfig& c) { c.max_total_tokens = 0; }), "--max-total-tokens");
  EXPECT_EQ(refused([](EngineConfig& c) { c.max_total_tokens = int64_t{1} << 40; }), "--max-total-tokens");
  EXPECT_EQ(refused([](EngineConfig& c) { c.max_queued_requests = -1; }), "--max-queued-requests");
}

}  // namespace
}  // namespace lockstep::runtime
