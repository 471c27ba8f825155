#pragma once
// POST /v1/completions: the request's body, checked and with defaults filled in.
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/serving/openai/generation_options.h"

namespace lockstep::serving::openai {

inline constexpr size_t kMaxPrompts = 1024;
inline constexpr size_t kMaxAllChoices = 1024;  // prompts times n
inline constexpr int kDefaultMaxTokens = 16;    // OpenAI's

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::optional<std::string> model;
  std::vector<Prompt> prompts;  // of one kind
  bool echo = false;
  std::string prompt_field = "prompt";  // how errors name the prompts
  GenerationOptions options;
};

Result<CompletionRequest> read_completion_request(const Json& body, const runtime::ModelInfo& model);

// A string, an array of strings, of ids, or of arrays of ids. `field` is its name.
Result<std::vector<Prompt>> read_prompts(const Json& value, std::string_view field, int vocab);

}  // namespace lockstep::serving::openai
