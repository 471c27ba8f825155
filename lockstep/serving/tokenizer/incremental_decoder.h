#pragma once
// Text of a reply while its tokens arrive. The parts joined are what Tokenizer::decode() gives for all ids,
// byte for byte; no part ends inside a character. One object per reply, used by one thread at a time.
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/serving/tokenizer/tokenizer.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving {

class IncrementalDecoder {
 public:
  // The tokenizer must outlive this.
  IncrementalDecoder(const Tokenizer& tokenizer, SpecialTokens special_tokens);

  // The text that became complete, often empty. Bytes that can no longer become a character are U+FFFD at
  // once; where the tokenizer has tokens of single bytes, a run of them waits for its end.
  std::string push(int32_t id);

  // The reply ended: U+FFFD for a character that was begun, otherwise nothing. The next push() starts a new
  // reply.
  std::string finish();

  // What is held back becomes text, and the reply goes on. For a caller that puts something of its own
  // between two tokens.
  std::string flush();

 private:
  void end_byte_run(std::string& text);
  std::string without_stripped(std::string text);

  const Tokenizer* tokenizer_;
  SpecialTokens special_tokens_;
  tokenizing::Utf8Repair repair_;
  std::string byte_run_;
  int num_to_strip_;
  bool is_first_ = true;
};

}  // namespace lockstep::serving
