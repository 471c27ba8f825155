#pragma once
// The texts of a model's special tokens, from tokenizer_config.json and special_tokens_map.json: what
// templates call bos_token, eos_token and so on. Anybody in serving may call it.
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving {

struct SpecialTokenTexts {
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;

  // An object of those that are there, under those names: the start of a template's variables.
  Json variables() const;
};

// A token is a string or an object with "content"; null and absent are none. special_tokens_map.json wins
// only where tokenizer_config.json is of the old kind (no added_tokens_decoder) or does not name the token.
// Missing files are fine.
Result<SpecialTokenTexts> load_special_tokens(const std::filesystem::path& directory);

}  // namespace lockstep::serving
