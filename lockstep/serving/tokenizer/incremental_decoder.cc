#include "lockstep/serving/tokenizer/incremental_decoder.h"

namespace lockstep::serving {

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, SpecialTokens special_tokens)
    : tokenizer_(&tokenizer), special_tokens_(special_tokens) {}

std::string IncrementalDecoder::push(int32_t id) {
  std::string text;
  if (special_tokens_ == SpecialTokens::kSkip && tokenizer_->is_special(id)) return text;
  repair_.append(tokenizer_->token_bytes(id), text);
  return text;
}

std::string IncrementalDecoder::finish() {
  std::string text;
  repair_.finish(text);
  return text;
}

}  // namespace lockstep::serving
