#pragma once
// Log probabilities in the two shapes of OpenAI's APIs. Only tokens whose characters are delivered are
// listed, so that the tokens joined are the text.
#include <cstdint>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/runtime/engine.h"
#include "lockstep/serving/reply/traced_text.h"
#include "lockstep/serving/tokenizer/tokenizer.h"

namespace lockstep::serving::openai {

// A token as text; bytes that are no whole character show as U+FFFD.
std::string token_text(const Tokenizer& tokenizer, int32_t id);

// The entries of chat's logprobs.content for the tokens that begin in `text`: token, logprob, bytes,
// top_logprobs.
Json chat_logprobs(const Tokenizer& tokenizer, const std::vector<runtime::OutputToken>& tokens,
                   const TracedText& text);

// The four parallel arrays of /v1/completions. text_offset counts characters of the choice's text.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(int num_top_logprobs) : num_top_logprobs_(num_top_logprobs) {}

  void add(const Tokenizer& tokenizer, const std::vector<runtime::OutputToken>& tokens,
           const TracedText& text);
  // Tokens of a prompt that is repeated: the first has no log probability.
  void add_prompt(const Tokenizer& tokenizer, const std::vector<runtime::OutputToken>& prompt);
  // What was added since the last take().
  Json take();

 private:
  int num_top_logprobs_;
  int64_t num_characters_ = 0;
  Json tokens_ = Json::array(), token_logprobs_ = Json::array(), top_logprobs_ = Json::array(),
       text_offset_ = Json::array();
};

}  // namespace lockstep::serving::openai
