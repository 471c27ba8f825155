#pragma once
// The "decoder" of tokenizer.json: how the spellings of tokens become the bytes of a text. What depends on
// one token alone is done once for each, at load; what depends on its neighbours is a DecodeRule that
// IncrementalDecoder follows. Decoders that need the whole text at once are refused by name.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::tokenizing {

struct DecodeRule {
  // Byte tokens that follow each other are one run: characters where the whole run is valid UTF-8, and
  // otherwise U+FFFD for each of its bytes. Without the rule all bytes are one stream that is repaired.
  bool has_byte_runs = false;
  // Leading characters of the whole text that are dropped while they are `stripped`.
  int num_stripped = 0;
  std::string stripped;
  // The first token decodes to TokenForm::first instead of `text`.
  bool first_differs = false;
};

// What one spelling becomes.
struct TokenForm {
  std::string text;
  std::string first;  // as the first token of a text; read only where the rule says so
  bool is_byte = false;
};

class TokenDecoder {
 public:
  // ByteLevel, or a chain of Replace (of a string), Strip and Metaspace, then ByteFallback, then Fuse, then
  // Strip at the start. `path` is how an error names the value.
  static Result<TokenDecoder> read(const Json& value, const std::string& path);

  const DecodeRule& rule() const { return rule_; }
  TokenForm form_of(const std::string& spelling) const;

 private:
  struct Replace {
    std::string from, to;
  };
  struct Strip {
    std::string content;  // one character
    int64_t start = 0;
    int64_t stop = 0;
  };
  struct Metaspace {
    std::string replacement;
    bool drops_first = false;
  };
  struct Step {  // exactly one is set
    std::optional<Replace> replace;
    std::optional<Strip> strip;
    std::optional<Metaspace> metaspace;
  };
  Status add(const Json& value, const std::string& type, const std::string& path);
  Status add_strip(const Json& value, const std::string& path);
  std::string apply(std::string text, bool is_first) const;

  bool is_byte_level_ = false;
  bool is_fused_ = false;
  std::vector<Step> steps_;
  DecodeRule rule_;
};

// The byte that a token spelled <0x0A> stands for.
std::optional<uint8_t> byte_of_token(std::string_view spelling);

// And back.
std::string byte_token(uint8_t byte);

}  // namespace lockstep::serving::tokenizing
