#pragma once
// What a checkpoint's generation_config.json adds to its description: stop ids, sampling defaults, and notes
// on what it asks for and nobody does. Only registry.cc calls this.
#include <filesystem>

#include "lockstep/models/config_reader.h"
#include "lockstep/models/registry.h"

namespace lockstep::models {

// A file that holds one JSON object; the error names it.
Result<Json> read_json_object(const std::filesystem::path& path);

// One id or a list of them; none when absent or null. What is no id is refused.
std::vector<int32_t> read_token_ids(const Json& config, const char* key, ConfigReader& reader);

Status read_generation(const std::filesystem::path& path, CheckpointInfo& info);

// A stop that can never be drawn is no reason to refuse a model, but its user should know.
void note_stops_outside(CheckpointInfo& info);

}  // namespace lockstep::models
