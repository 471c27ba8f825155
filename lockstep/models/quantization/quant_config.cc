#include "lockstep/models/quantization/quant_config.h"

#include <algorithm>
#include <cctype>

namespace lockstep::models {
namespace {

using Method = QuantConfig::Method;
using Dialect = NamePattern::Dialect;

constexpr int64_t kMaxBlock = 1 << 20;
constexpr size_t kMaxPatterns = 1 << 16;

void add_pattern(ConfigReader& outer, std::vector<NamePattern>& list, const std::string& text,
                 Dialect dialect) {
  auto pattern = NamePattern::parse(text, dialect);
  if (!pattern) return outer.refuse("quantization_config", pattern.error().message);
  list.push_back(*std::move(pattern));
}

void read_ignored(ConfigReader& outer, ConfigReader& reader, const char* key, Dialect dialect,
                  QuantConfig& config) {
  const std::vector<std::string> texts = reader.texts(key);
  if (texts.size() > kMaxPatterns)
    return reader.refuse(key, fmt::format("has {} names, more than {}", texts.size(), kMaxPatterns));
  for (const std::string& text : texts) {
    if (dialect == Dialect::kRegex && text.starts_with("re:")) {
      add_pattern(outer, config.ignored, text.substr(3), Dialect::kRegex);
    } else {
      add_pattern(outer, config.ignored, text, dialect == Dialect::kRegex ? Dialect::kModule : dialect);
    }
  }
}

void read_fp8(ConfigReader& outer, ConfigReader& reader, QuantConfig& config) {
  reader.require("fmt", reader.text_or("fmt", "e4m3"), {"e4m3", "float8_e4m3fn"});
  reader.require("scale_fmt", reader.text_or("scale_fmt", "ue8m0"), {"ue8m0", "float"});
  if (reader.has("weight_block_size")) {
    const auto sizes = reader.integers("weight_block_size");
    const bool fit = sizes.size() == 2 && std::all_of(sizes.begin(), sizes.end(), [](int64_t size) {
                       return size >= 1 && size <= kMaxBlock;
                     });
    if (!fit) return reader.refuse("weight_block_size", "is not two sizes from 1 on");
    config.block_rows = sizes[0];
    config.block_cols = sizes[1];
  }
  read_ignored(outer, reader, "modules_to_not_convert", Dialect::kModule, config);
  read_ignored(outer, reader, "ignored_layers", Dialect::kModule, config);
}

// Either the member of a config.json or the "quantization" of a hf_quant_config.json.
void read_modelopt(ConfigReader& outer, ConfigReader& reader, QuantConfig& config) {
  std::string algo = reader.text_or("quant_algo", "");
  std::transform(algo.begin(), algo.end(), algo.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  reader.require(
      "quant_algo", algo,
      {"FP8", "NVFP4", "W4A16_NVFP4", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "MIXED_PRECISION"});
  if (reader.integer_or("group_size", 16, 1, kMaxBlock) != 16 && algo.find("NVFP4") != algo.npos)
    reader.refuse("group_size", "is not 16, which NVFP4 has");
  config.bits = algo.find("NVFP4") != algo.npos ? 4 : 8;
  if (algo == "FP8_PB_WO" || algo == "MIXED_PRECISION") config.block_rows = config.block_cols = 128;
  read_ignored(outer, reader, "ignore", Dialect::kWildcards, config);
  read_ignored(outer, reader, "exclude_modules", Dialect::kWildcards, config);
}

QuantConfig::Group read_group(ConfigReader& outer, const Json& json) {
  QuantConfig::Group group;
  ConfigReader reader(json);
  for (const std::string& target : reader.texts("targets")) {
    if (target == "Linear") {
      group.targets_all = true;
    } else if (target.starts_with("re:")) {
      add_pattern(outer, group.targets, target.substr(3), Dialect::kRegex);
    } else {
      add_pattern(outer, group.targets, target, Dialect::kModule);
    }
  }
  const Json* json_weights = reader.object("weights");
  if (json_weights == nullptr) {
    reader.refuse("weights", "is missing");
  } else {
    ConfigReader weights(*json_weights);
    const std::string type = weights.text_or("type", "int");
    weights.require("type", type, {"int", "float"});
    group.type = type == "float" ? QuantConfig::Group::Type::kFloat : QuantConfig::Group::Type::kInt;
    group.bits = static_cast<int>(weights.integer_or("num_bits", 8, 1, 64));
    if (group.bits != 4 && group.bits != 8)
      weights.refuse("num_bits", fmt::format("{} is not handled (handled: 4, 8)", group.bits));
    const std::string strategy = weights.text_or("strategy", "tensor");
    weights.require("strategy", strategy, {"tensor", "channel", "group", "tensor_group", "block"});
    using enum QuantConfig::Group::Strategy;
    group.strategy = strategy == "tensor"    ? kTensor
                     : strategy == "channel" ? kChannel
                     : strategy == "block"   ? kBlock
                                             : kGroup;
    if (group.strategy == kGroup) group.group_size = weights.integer("group_size", 1, kMaxBlock);
    if (group.strategy == kBlock) {
      const auto block = weights.integers("block_structure");
      if (block.size() != 2 || block[0] < 1 || block[1] < 1 || block[0] > kMaxBlock || block[1] > kMaxBlock) {
        weights.refuse("block_structure", "is not two sizes from 1 on");
      } else {
        group.block_rows = block[0];
        group.block_cols = block[1];
      }
    }
    if (const Status status = weights.status(); !status)
      outer.refuse("config_groups:", status.error().message);
  }
  if (const Status status = reader.status(); !status) outer.refuse("config_groups:", status.error().message);
  return group;
}

void read_compressed_tensors(ConfigReader& outer, ConfigReader& reader, QuantConfig& config) {
  for (const char* key : {"sparsity_config", "transform_config"})
    if (const Json* value = reader.object(key); value != nullptr && !value->empty())
      reader.refuse(key, "is there, which is not handled");
  const Json* groups = reader.object("config_groups");
  if (groups == nullptr || groups->empty()) return reader.refuse("config_groups", "is missing or empty");
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object())
      return reader.refuse("config_groups", fmt::format("holds {} that is no object", name));
    config.groups.push_back(read_group(outer, group));
  }
  read_ignored(outer, reader, "ignore", Dialect::kRegex, config);
}

void read_integers(ConfigReader& outer, ConfigReader& reader, QuantConfig& config) {
  const char* bits_key = reader.has("bits") ? "bits" : "w_bit";
  config.bits = static_cast<int>(reader.integer_or(bits_key, 4, 1, 64));
  if (config.bits != 4 && (config.bits != 8 || config.method == Method::kAwq))
    reader.refuse(bits_key, fmt::format("{} is not handled (handled: 4{})", config.bits,
                                        config.method == Method::kGptq ? ", 8" : ""));
  const char* size_key = reader.has("group_size") ? "group_size" : "q_group_size";
  const int64_t size = reader.integer_or(size_key, 128, -1, kMaxBlock);
  if (size == 0 || (size > 0 && size % 8 != 0))
    reader.refuse(size_key, fmt::format("{} is neither -1 nor a multiple of 8", size));
  config.group_size = std::max<int64_t>(size, 0);
  if (const Json* dynamic = reader.object("dynamic"); dynamic != nullptr && !dynamic->empty())
    reader.refuse("dynamic", "gives modules settings of their own, which is not handled");
  if (config.method == Method::kGptq) {
    const std::string format = reader.text_or("checkpoint_format", "gptq");
    reader.require("checkpoint_format", format, {"gptq", "gptq_v2"});
    if (format == "gptq_v2") config.zeros = QuantConfig::Zeros::kAsStored;
  } else {
    config.zeros = QuantConfig::Zeros::kAsStored;
    std::string version = reader.text_or("version", "gemm");
    std::transform(version.begin(), version.end(), version.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    reader.require("version", version, {"gemm"});
  }
  read_ignored(outer, reader, "modules_to_not_convert", Dialect::kModule, config);
}

// ModelOpt's own file keeps the settings one level deeper.
const Json& settings_of(ConfigReader& reader, const Json& json) {
  const Json* inner = reader.object("quantization");
  return inner == nullptr ? json : *inner;
}

Method method_named(std::string_view name) {
  if (name == "fp8") return Method::kFp8;
  if (name.starts_with("modelopt")) return Method::kModelOpt;
  if (name == "compressed-tensors") return Method::kCompressedTensors;
  if (name == "mxfp4") return Method::kMxfp4;
  if (name == "gptq") return Method::kGptq;
  return name == "awq" ? Method::kAwq : Method::kNone;
}

}  // namespace

std::string_view name_of(Method method) {
  switch (method) {
    case Method::kNone:
      return "none";
    case Method::kFp8:
      return "fp8";
    case Method::kModelOpt:
      return "modelopt";
    case Method::kCompressedTensors:
      return "compressed-tensors";
    case Method::kMxfp4:
      return "mxfp4";
    case Method::kGptq:
      return "gptq";
    case Method::kAwq:
      return "awq";
  }
  return "?";
}

bool QuantConfig::ignores(const std::string& module) const {
  return std::any_of(ignored.begin(), ignored.end(),
                     [&](const NamePattern& pattern) { return pattern.matches(module); });
}

const QuantConfig::Group* QuantConfig::group_of(const std::string& module) const {
  for (const Group& group : groups)
    if (std::any_of(group.targets.begin(), group.targets.end(),
                    [&](const NamePattern& pattern) { return pattern.matches(module); }))
      return &group;
  for (const Group& group : groups)
    if (group.targets_all) return &group;
  return nullptr;
}

QuantConfig read_quantization(ConfigReader& outer) {
  QuantConfig config;
  const Json* json = outer.object("quantization_config");
  if (json == nullptr) json = outer.object("compression_config");
  if (json == nullptr) {
    const std::string dtype = outer.text_or("dtype", outer.text_or("torch_dtype", ""));
    if (dtype == "float32") config.plain_bytes = 4;
    return config;
  }
  ConfigReader top(*json);
  ConfigReader reader(settings_of(top, *json));
  const std::string name = top.text_or("quant_method", "");
  config.method = method_named(name);
  switch (config.method) {
    case Method::kNone:
      reader.refuse(
          "quant_method",
          fmt::format("\"{}\" is not handled (handled: fp8, modelopt, compressed-tensors, mxfp4, gptq, "
                      "awq); use a bf16 checkpoint",
                      name));
      break;
    case Method::kFp8:
      read_fp8(outer, reader, config);
      break;
    case Method::kModelOpt:
      read_modelopt(outer, reader, config);
      break;
    case Method::kCompressedTensors:
      read_compressed_tensors(outer, reader, config);
      break;
    case Method::kMxfp4:
      read_ignored(outer, reader, "modules_to_not_convert", Dialect::kModule, config);
      break;
    case Method::kGptq:
    case Method::kAwq:
      read_integers(outer, reader, config);
      break;
  }
  for (const ConfigReader* each : {&top, &reader})
    if (const Status status = each->status(); !status)
      outer.refuse("quantization_config:", status.error().message);
  return config;
}

double bytes_per_weight(const QuantConfig& config) {
  switch (config.method) {
    case Method::kNone:
      return config.plain_bytes;
    case Method::kFp8:
      return config.block_rows == 0 ? 1
                                    : 1 + 4.0 / static_cast<double>(config.block_rows * config.block_cols);
    case Method::kModelOpt:
      return config.bits == 4 ? 0.5625 : 1;
    case Method::kMxfp4:
      return 0.53125;
    case Method::kCompressedTensors:
      return config.groups.empty() ? config.plain_bytes : config.groups.front().bits / 8.0;
    // A factor in half precision and a zero point for each group.
    case Method::kGptq:
    case Method::kAwq:
      return config.bits / 8.0 +
             (config.group_size == 0 ? 0 : (2 + config.bits / 8.0) / static_cast<double>(config.group_size));
  }
  return config.plain_bytes;
}

int block_width(const QuantConfig& config) {
  int64_t width = 0;
  switch (config.method) {
    case Method::kNone:
      break;
    case Method::kFp8:
      width = std::max(config.block_rows, config.block_cols);
      break;
    case Method::kModelOpt:
      width = config.bits == 4 ? 16 : config.block_rows;
      break;
    case Method::kMxfp4:
      width = 32;
      break;
    case Method::kCompressedTensors:
      for (const QuantConfig::Group& group : config.groups)
        width = std::max({width, group.group_size, group.block_rows, group.block_cols});
      break;
    case Method::kGptq:
    case Method::kAwq:
      width = config.group_size;
      break;
  }
  return static_cast<int>(width);
}

}  // namespace lockstep::models
