#pragma once
// What chat completions and completions ask of the engine in the same words: sampling, limits, stops, seeds,
// streaming.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/engine.h"
#include "lockstep/serving/constraints/grammar_compiler.h"
#include "lockstep/serving/openai/fields.h"

namespace lockstep::serving::openai {

inline constexpr int kMaxChoices = 128;  // OpenAI's limit of n
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr size_t kMaxStopTokenIds = 1024;  // the engine's limit, before every choice has a copy
inline constexpr int kMaxPriority = 1'000'000;
inline constexpr size_t kMaxNameBytes = 512;  // of a user, of a salt, of an id

struct GenerationOptions {
  runtime::SamplingParams sampling;
  std::optional<int> max_tokens;
  int min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;
  int num_choices = 1;
  int num_top_logprobs = -1;  // as runtime::Request; each API reads its own fields
  int prompt_logprobs = -1;   // as runtime::Request
  int priority = 0;           // higher starts first
  std::string user, cache_salt;
  bool stream = false;
  bool include_usage = false;
  std::optional<constraints::OutputForm> form;  // what the answer's text must be
};

// Where the request says nothing the model's own defaults hold. Complaints go to `fields`.
GenerationOptions read_generation_options(Fields& fields, const runtime::ModelInfo& model);

// A text that somebody is called by: at most kMaxNameBytes, empty where there is none.
std::string read_name(Fields& fields, std::string_view key);

// Choice `choice_idx` of a request with this seed draws with its own seed; choice 0 with the request's.
std::optional<uint64_t> seed_of_choice(std::optional<uint64_t> seed, int choice_idx);

// Refuses by name what would change the answer and is not there: audio, web search, ...
void refuse_unsupported(Fields& fields);

}  // namespace lockstep::serving::openai
