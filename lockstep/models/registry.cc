#include "lockstep/models/registry.h"

#include "lockstep/base/file.h"
#include "lockstep/models/config_reader.h"
#include "lockstep/models/deepseek_v3/config.h"
#include "lockstep/models/glm4_moe/config.h"
#include "lockstep/models/llama/config.h"
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
    {"deepseek_v3", deepseek_v3::describe},
    {"glm4_moe", glm4_moe::describe},
    {"llama", llama::describe},
    {"qwen3", qwen3::describe},
    {"qwen3_5_moe", qwen3_5_moe::describe},
    {"qwen3_5_moe_text", qwen3_5_moe::describe},
    {"qwen3_moe", qwen3_moe::describe},
    {"qwen3_next", qwen3_next::describe},
};

Result<Json> read_json(const std::filesystem::path& path) {
  const auto text = read_file(path, size_t{16} << 20);
  if (!text) return text.error();
  auto json = parse_json(*text);
  if (!json) return invalid_argument(path.string(), "{}: {}", path.string(), json.error().message);
  if (!json->is_object()) return invalid_argument(path.string(), "{} is not a JSON object", path.string());
  return json;
}

std::vector<int32_t> read_ids(const Json& config, const char* key) {
  std::vector<int32_t> ids;
  const auto at = config.find(key);
  if (at == config.end()) return ids;
  const auto add = [&](const Json& id) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < INT32_MAX)
      ids.push_back(id.get<int32_t>());
  };
  if (at->is_array()) {
    for (const Json& id : *at) add(id);
  } else {
    add(*at);
  }
  return ids;
}

// A model that also sees keeps what concerns its text in an object of its own.
std::vector<int32_t> read_stop_ids(const Json& config) {
  auto ids = read_ids(config, "eos_token_id");
  const auto text = config.find("text_config");
  if (ids.empty() && text != config.end() && text->is_object()) ids = read_ids(*text, "eos_token_id");
  return ids;
}

// What generation_config.json adds: stop ids, and how the model likes to be sampled.
Status read_generation(const std::filesystem::path& path, CheckpointInfo& info) {
  const auto json = read_json(path);
  if (!json) return json.error();
  if (auto ids = read_ids(*json, "eos_token_id"); !ids.empty()) info.eos_token_ids = std::move(ids);
  ConfigReader reader(*json);
  SamplingDefaults& sampling = info.sampling;
  if (reader.flag_or("do_sample", false)) {
    sampling.temperature = static_cast<float>(reader.number_or("temperature", 1.0, 0, 100));
    sampling.top_p = static_cast<float>(reader.number_or("top_p", 1.0, 0, 1));
    sampling.top_k = static_cast<int>(reader.integer_or("top_k", 0, 0, 1 << 24));
    sampling.min_p = static_cast<float>(reader.number_or("min_p", 0.0, 0, 1));
  }
  sampling.repetition_penalty = static_cast<float>(reader.number_or("repetition_penalty", 1.0, 0.01, 100));
  if (const Status status = reader.status(); !status)
    return invalid_argument(path.string(), "{}: {}", path.string(), status.error().message);
  return Done{};
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
  auto config = read_json(directory / "config.json");
  const auto apart = directory / "hf_quant_config.json";
  std::error_code ignored;
  if (!config || config->contains("quantization_config") || !std::filesystem::exists(apart, ignored))
    return config;
  auto quantization = read_json(apart);
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
  CheckpointInfo info{std::move(description).value(), read_stop_ids(*config), {.temperature = 0.0f}};
  const auto generation = directory / "generation_config.json";
  if (std::filesystem::exists(generation))
    if (const Status status = read_generation(generation, info); !status) return status.error();
  return info;
}

}  // namespace lockstep::models
