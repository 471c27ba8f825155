#include "lockstep/serving/tokenizer/incremental_decoder.h"

#include <utility>

#include "lockstep/serving/tokenizer/decoder.h"

namespace lockstep::serving {

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, SpecialTokens special_tokens)
    : tokenizer_(&tokenizer),
      special_tokens_(special_tokens),
      num_to_strip_(tokenizer.decode_rule().num_stripped) {}

std::string IncrementalDecoder::push(int32_t id) {
  std::string text;
  if (special_tokens_ == SpecialTokens::kSkip && tokenizer_->is_special(id)) return text;
  if (!tokenizer_->is_known(id)) return text;
  const std::string_view bytes =
      std::exchange(is_first_, false) ? tokenizer_->first_token_bytes(id) : tokenizer_->token_bytes(id);
  if (!tokenizer_->decode_rule().has_byte_runs) {
    repair_.append(bytes, text);
  } else if (tokenizer_->is_byte(id)) {
    byte_run_ += bytes;
  } else {
    end_byte_run(text);
    text += bytes;
  }
  return without_stripped(std::move(text));
}

void IncrementalDecoder::end_byte_run(std::string& text) {
  if (tokenizing::is_valid_utf8(byte_run_)) {
    text += byte_run_;
  } else {
    for (size_t i = 0; i < byte_run_.size(); ++i) text += "\uFFFD";
  }
  byte_run_.clear();
}

std::string IncrementalDecoder::without_stripped(std::string text) {
  const std::string& stripped = tokenizer_->decode_rule().stripped;
  size_t num_bytes = 0;
  while (num_to_strip_ > 0 && num_bytes < text.size()) {
    if (text.compare(num_bytes, stripped.size(), stripped) != 0) {
      num_to_strip_ = 0;
    } else {
      num_bytes += stripped.size();
      --num_to_strip_;
    }
  }
  if (num_bytes > 0) text.erase(0, num_bytes);
  return text;
}

std::string IncrementalDecoder::flush() {
  std::string text;
  end_byte_run(text);
  repair_.finish(text);
  return without_stripped(std::move(text));
}

std::string IncrementalDecoder::finish() {
  std::string text = flush();
  num_to_strip_ = tokenizer_->decode_rule().num_stripped;
  is_first_ = true;
  return text;
}

}  // namespace lockstep::serving
