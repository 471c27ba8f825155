#pragma once
// What a model's folder tells templates and prompts about its special tokens. Private to chat.cc.
#include <filesystem>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving {

struct TemplateVariables {
  Json values = Json::object();  // bos_token, eos_token, ... as templates call them
  bool add_bos_token = false;    // before prompts that no template rendered
};

Result<TemplateVariables> load_template_variables(const std::filesystem::path& directory);

}  // namespace lockstep::serving
