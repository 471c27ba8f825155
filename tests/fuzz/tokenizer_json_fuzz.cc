// Any bytes as a tokenizer.json are refused with a message or give a tokenizer, and a tokenizer takes any
// bytes as text: it encodes to ids that it knows, the same each time, and streamed text is the text of the
// whole.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/serving/tokenizer/incremental_decoder.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace {

using lockstep::serving::AddedTokens;
using lockstep::serving::IncrementalDecoder;
using lockstep::serving::SpecialTokens;
using lockstep::serving::Tokenizer;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  for (const AddedTokens added : {AddedTokens::kParse, AddedTokens::kAsText}) {
    const auto ids = tokenizer.encode(text, added);
    require(ids == tokenizer.encode(text, added));
    for (const SpecialTokens special : {SpecialTokens::kKeep, SpecialTokens::kSkip}) {
      std::string joined;
      IncrementalDecoder decoder(tokenizer, special);
      for (const int32_t id : ids) joined += decoder.push(id);
      joined += decoder.finish();
      require(joined == tokenizer.decode(ids, special));
      require(lockstep::serving::tokenizing::is_valid_utf8(joined));
    }
    for (const int32_t id : ids) require(id >= 0 && id < tokenizer.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::from_json(bytes);
  if (!tokenizer.ok()) {
    require(!tokenizer.error().message.empty());
    return 0;
  }
  check_text(*tokenizer, bytes);
  check_text(*tokenizer,
             "Hello  <s> don't 123 \xE4\xBD\xA0\xE5\xA5\xBD e\xCC\x81 \xF0\x9F\xA9\xB7 \n\n aaaa  \xFF");
  return 0;
}
