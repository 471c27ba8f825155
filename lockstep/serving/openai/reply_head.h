#pragma once
// What every answer and every chunk of an answer says about itself, and the usage at its end.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/generation.h"

namespace lockstep::serving::openai {

struct ReplyHead {
  std::string id;  // "chatcmpl-..."
  int64_t created = 0;
  std::string model;
  std::string fingerprint;  // of the configuration: answers to the same seed may be compared when it is equal
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
  // [prompts] the tokens that were in the cache before the request came: the fewest of the prompt's choices,
  // since one choice may find what another has computed.
  std::vector<int64_t> cached_tokens;

  void add(int prompt_idx, const ChoiceEnd& end);
  int64_t all_cached() const;
};

Json usage_json(const Usage& usage);

// {"id", "object", "created", "model", "system_fingerprint"}
Json head_json(const ReplyHead& head, std::string_view object);

// Appends `text`, which must be valid UTF-8, as a JSON string with its quotes.
void append_json_string(std::string_view text, std::string& out);

// `prefix` and 24 random letters and digits.
std::string random_id(std::string_view prefix);

// "data: {...}\n\n"
std::string sse_event(std::string_view json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace lockstep::serving::openai
