#pragma once
// Text to token ids and back, as tokenizer.json of Hugging Face defines it: byte-level BPE,
// SentencePiece-style BPE with byte fallback, and Unigram. The tokenizer's front door, with
// incremental_decoder.h. Anything that such a file asks for and this cannot do exactly is refused at load, by
// name. Special tokens around a prompt are never added by encode(): chat templates print them.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::serving {

namespace tokenizing {
struct DecodeRule;
}

enum class AddedTokens : unsigned char {
  kParse,   // an added token's content in the text becomes its id: for text that a template rendered
  kAsText,  // it stays ordinary text, whatever a user typed; only tokens of nothing but white space are still
            // found
};

enum class SpecialTokens : unsigned char { kKeep, kSkip };

// Immutable after load; every const method may be called from any number of threads at once.
class Tokenizer {
 public:
  // Reads tokenizer.json of a model's folder. Errors name the field and its value.
  static Result<Tokenizer> load(const std::filesystem::path& directory);
  static Result<Tokenizer> from_json(std::string_view tokenizer_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Any bytes: what is not UTF-8 becomes U+FFFD first. With kAsText no added token's id comes out, white
  // space excepted.
  std::vector<int32_t> encode(std::string_view text, AddedTokens added_tokens) const;

  // Always valid UTF-8. Unknown ids, those of a padded vocabulary among them, decode to nothing.
  std::string decode(std::span<const int32_t> ids, SpecialTokens special_tokens) const;

  // What one token decodes to: often no whole character. Empty for an unknown id.
  std::string_view token_bytes(int32_t id) const;
  // The same for the first token of a text.
  std::string_view first_token_bytes(int32_t id) const;

  // How tokens' bytes become text; for IncrementalDecoder.
  const tokenizing::DecodeRule& decode_rule() const;
  bool is_known(int32_t id) const;
  // A token of one byte whose neighbours decide what it becomes.
  bool is_byte(int32_t id) const;

  // The added token with this content, or else the vocabulary entry with these bytes.
  std::optional<int32_t> find(std::string_view content) const;

  bool is_special(int32_t id) const;
  bool is_added(int32_t id) const;

  // One more than the largest id.
  int size() const;

  // What the file's post-processor would put before and after a prompt that no template rendered: a BOS, as a
  // rule.
  std::span<const int32_t> prompt_prefix() const;
  std::span<const int32_t> prompt_suffix() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace lockstep::serving
