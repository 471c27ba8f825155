#pragma once
// From a checkpoint's folder to its description: one row a family, written out. A family or a setting that
// changes the maths and is not handled is refused by name.
#include <filesystem>
#include <optional>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/models/model.h"

namespace lockstep::models {

struct CheckpointInfo {
  std::shared_ptr<const ModelDescription> description;
  std::vector<int32_t> eos_token_ids;  // generation_config.json, else config.json
  SamplingDefaults sampling;           // greedy when do_sample is false or absent
  std::vector<std::string> notes;      // what generation_config.json asks for and nobody does
};

// config.json of the folder; quantization settings that stand in a file of their own (hf_quant_config.json)
// as its member quantization_config.
Result<Json> read_config(const std::filesystem::path& directory);

// Reads config.json and generation_config.json (if there) of the folder; no weights.
Result<CheckpointInfo> describe(const std::filesystem::path& directory);

// The same from the config's text alone.
Result<std::unique_ptr<const ModelDescription>> describe_config(const Json& config);

}  // namespace lockstep::models
