#pragma once
// What ids mean: the entries of model.vocab and the added tokens, by id and by content.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/serving/tokenizer/decoder.h"

namespace lockstep::serving::tokenizing {

// An entry of model.vocab as the file spells it.
struct VocabEntry {
  std::string spelling;
  int64_t id = 0;
  double score = 0;  // log probability; Unigram only
};

// An entry of added_tokens.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string searched;  // what is found in a text, and what the token decodes to: the content, normalized if
                         // so asked
  bool single_word = false;  // found only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;
  bool normalized = false;  // searched for after normalization, its own content normalized too
  bool special = false;     // left out by decode() with SpecialTokens::kSkip; matched like any other
};

class Vocabulary {
 public:
  static constexpr int64_t kMaxId = int64_t{1} << 22;

  // Errors: an id out of range or used twice, an added token that model.vocab knows by another id.
  static Result<Vocabulary> build(std::vector<VocabEntry> entries, std::span<const AddedToken> added,
                                  const TokenDecoder& decoder);

  // One more than the largest id; ids in between may be unknown.
  int size() const { return static_cast<int>(tokens_.size()); }

  // The bytes that the token decodes to; empty for an unknown id.
  std::string_view bytes(int32_t id) const;
  // The same for the first token of a text.
  std::string_view first_bytes(int32_t id) const;

  bool is_known(int32_t id) const { return has(id, kKnown); }
  // One byte of a run that is read together: DecodeRule::has_byte_runs.
  bool is_byte(int32_t id) const { return has(id, kByte); }

  bool is_special(int32_t id) const { return has(id, kSpecial); }
  bool is_added(int32_t id) const { return has(id, kAdded); }

  // Entries of model.vocab, in no order.
  template <class Visitor>
  void for_each_spelling(const Visitor& visit) const {
    for (const auto& [spelling, id] : spellings_) visit(spelling, id);
  }
  std::optional<int32_t> find_spelling(std::string_view spelling) const;
  std::optional<int32_t> find_added(std::string_view content) const;

 private:
  static constexpr uint8_t kKnown = 1, kAdded = 2, kSpecial = 4, kByte = 8;
  struct Token {
    std::string bytes;
    uint8_t flags = 0;
  };
  // Hashes a view, so that looking up needs no copy.
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Index = std::unordered_map<std::string, int32_t, Hash, std::equal_to<>>;

  bool has(int32_t id, uint8_t flag) const {
    return id >= 0 && id < size() && (tokens_[static_cast<size_t>(id)].flags & flag) != 0;
  }
  Status add_entry(VocabEntry entry, const TokenDecoder& decoder);
  Status add_token(const AddedToken& token, size_t position, const TokenDecoder& decoder);
  void set_form(int32_t id, const std::string& spelling, uint8_t flags, const TokenDecoder& decoder);

  std::vector<Token> tokens_;             // by id
  std::vector<std::string> first_forms_;  // by id; empty when the first token is like any other
  Index spellings_;
  Index added_;
};

}  // namespace lockstep::serving::tokenizing
