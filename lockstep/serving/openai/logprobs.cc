#include "lockstep/serving/openai/logprobs.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace lockstep::serving::openai {
namespace {

// JSON has no infinity; OpenAI writes -9999 for a token that cannot come.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

Json chat_entry(const Tokenizer& tokenizer, int32_t id, float logprob) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", token_text(tokenizer, id)}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.decode({&id, 1}, SpecialTokens::kKeep);
}

Json chat_logprobs(const Tokenizer& tokenizer, const std::vector<runtime::OutputToken>& tokens,
                   const TracedText& text) {
  Json entries = Json::array();
  for (const TracedText::Start& start : text.starts()) {
    const runtime::OutputToken& token = tokens.at(static_cast<size_t>(start.token_idx));
    Json entry = chat_entry(tokenizer, token.token_id, token.logprob);
    Json top = Json::array();
    for (const runtime::TokenLogprob& candidate : token.top)
      top.push_back(chat_entry(tokenizer, candidate.token_id, candidate.logprob));
    entry["top_logprobs"] = std::move(top);
    entries.push_back(std::move(entry));
  }
  return entries;
}

void CompletionLogprobs::add(const Tokenizer& tokenizer, const std::vector<runtime::OutputToken>& tokens,
                             const TracedText& text) {
  size_t counted = 0;
  for (const TracedText::Start& start : text.starts()) {
    num_characters_ +=
        count_characters(std::string_view(text.text()).substr(counted, start.offset - counted));
    counted = start.offset;
    const runtime::OutputToken& token = tokens.at(static_cast<size_t>(start.token_idx));
    tokens_.push_back(token_text(tokenizer, token.token_id));
    token_logprobs_.push_back(finite(token.logprob));
    text_offset_.push_back(num_characters_);
    Json top = Json::object();
    // Two tokens may have the same text (pieces of characters do): the likelier one stands for it.
    for (const runtime::TokenLogprob& candidate : token.top)
      top.emplace(token_text(tokenizer, candidate.token_id), finite(candidate.logprob));
    top_logprobs_.push_back(std::move(top));
  }
  num_characters_ += count_characters(std::string_view(text.text()).substr(counted));
}

void CompletionLogprobs::add_prompt(const Tokenizer& tokenizer,
                                    const std::vector<runtime::OutputToken>& prompt) {
  for (size_t i = 0; i < prompt.size(); ++i) {
    const runtime::OutputToken& token = prompt[i];
    tokens_.push_back(token_text(tokenizer, token.token_id));
    token_logprobs_.push_back(i == 0 ? Json() : Json(finite(token.logprob)));
    text_offset_.push_back(num_characters_);
    // Special tokens leave no text.
    if (!tokenizer.is_special(token.token_id))
      num_characters_ += count_characters(tokenizer.token_bytes(token.token_id));
    Json top = Json::object();
    for (const runtime::TokenLogprob& candidate : token.top)
      top.emplace(token_text(tokenizer, candidate.token_id), finite(candidate.logprob));
    top_logprobs_.push_back(i == 0 ? Json() : std::move(top));
  }
}

Json CompletionLogprobs::take() {
  Json top = num_top_logprobs_ > 0 ? std::exchange(top_logprobs_, Json::array()) : Json();
  top_logprobs_ = Json::array();
  return {{"tokens", std::exchange(tokens_, Json::array())},
          {"token_logprobs", std::exchange(token_logprobs_, Json::array())},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::exchange(text_offset_, Json::array())}};
}

}  // namespace lockstep::serving::openai
