#pragma once
// For tests of the families: the configs of tests/golden, and what is made of them.
#include <memory>
#include <stdexcept>
#include <string>

#include "lockstep/base/file.h"
#include "lockstep/models/registry.h"
#include "tests/source_dir.h"

namespace lockstep::models {

inline std::string folder(const std::string& name) {
  return std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/" + name;
}

inline Json config_of(const std::string& name) {
  return parse_json(read_file(folder(name) + "/config.json").value()).value();
}

inline std::unique_ptr<const ModelDescription> described(const Json& config) {
  auto description = describe_config(config);
  if (!description) throw std::runtime_error(description.error().message);
  return std::move(description).value();
}

inline std::string refusal(const Json& config) {
  const auto description = describe_config(config);
  return description ? "" : description.error().message;
}

}  // namespace lockstep::models
