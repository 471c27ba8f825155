#include "lockstep/models/registry.h"

#include "lockstep/models/config_reader.h"
#include "lockstep/models/deepseek_v2/config.h"
#include "lockstep/models/deepseek_v3/config.h"
#include "lockstep/models/deepseek_v32/config.h"
#include "lockstep/models/generation_config.h"
#include "lockstep/models/glm4_moe/config.h"
#include "lockstep/models/gpt_oss/config.h"
#include "lockstep/models/llama/config.h"
#include "lockstep/models/mixtral/config.h"
#include "lockstep/models/qwen2_moe/config.h"
#include "lockstep/models/qwen3/config.h"
#include "lockstep/models/qwen3_5_moe/config.h"
#include "lockstep/models/qwen3_moe/config.h"
#include "lockstep/models/qwen3_next/config.h"

namespace lockstep::models {
namespace {

struct Family {
  std::string_view model_type;
  Result<std::unique_ptr<const ModelDescription>> (*describe)(const Json& config);
};

constexpr Family kFamilies[] = {
    {"deepseek_v2", deepseek_v2::describe},
    {"deepseek_v3", deepseek_v3::describe},
    {"deepseek_v32", deepseek_v32::describe},
    {"glm4_moe", glm4_moe::describe},
    {"gpt_oss", gpt_oss::describe},
    {"llama", llama::describe},
    {"mixtral", mixtral::describe},
    {"qwen2_moe", qwen2_moe::describe},
    {"qwen3", qwen3::describe},
    {"qwen3_5_moe", qwen3_5_moe::describe},
    {"qwen3_5_moe_text", qwen3_5_moe::describe},
    {"qwen3_moe", qwen3_moe::describe},
    {"qwen3_next", qwen3_next::describe},
};

// A model that also sees keeps what concerns its text in an object of its own.
std::vector<int32_t> read_stop_ids(const Json& config, ConfigReader& reader) {
  auto ids = read_token_ids(config, "eos_token_id", reader);
  const auto text = config.find("text_config");
  if (ids.empty() && text != config.end() && text->is_object())
    ids = read_token_ids(*text, "eos_token_id", reader);
  return ids;
}

}  // namespace

Result<std::unique_ptr<const ModelDescription>> describe_config(const Json& config) {
  ConfigReader reader(config);
  const std::string type = reader.text_or("model_type", "");
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.model_type == type) return family.describe(config);
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return invalid_argument(
      "model_type", "model_type \"{}\" is not a family that this engine runs (it runs: {})", type, known);
}

Result<Json> read_config(const std::filesystem::path& directory) {
  auto config = read_json_object(directory / "config.json");
  const auto apart = directory / "hf_quant_config.json";
  std::error_code ignored;
  if (!config || config->contains("quantization_config") || !std::filesystem::exists(apart, ignored))
    return config;
  auto quantization = read_json_object(apart);
  if (!quantization) return quantization.error();
  (*quantization)["quant_method"] = "modelopt";
  (*config)["quantization_config"] = *std::move(quantization);
  return config;
}

Result<CheckpointInfo> describe(const std::filesystem::path& directory) {
  const auto config = read_config(directory);
  if (!config) return config.error();
  auto description = describe_config(*config);
  if (!description) return description.error();
  ConfigReader reader(*config);
  CheckpointInfo info{
      std::move(description).value(), read_stop_ids(*config, reader), {.temperature = 0.0f}, {}};
  if (const Status status = reader.status(); !status) return status.error();
  const auto generation = directory / "generation_config.json";
  if (std::filesystem::exists(generation))
    if (const Status status = read_generation(generation, info); !status) return status.error();
  note_stops_outside(info);
  return info;
}

}  // namespace lockstep::models
