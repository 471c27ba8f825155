#include "lockstep/serving/tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

#include "lockstep/serving/tokenizer/byte_alphabet.h"
#include "lockstep/serving/tokenizer/json_fields.h"

namespace lockstep::serving::tokenizing {
namespace {

std::optional<int32_t> find(const auto& index, std::string_view key) {
  const auto found = index.find(key);
  return found == index.end() ? std::nullopt : std::optional(found->second);
}

// Added tokens are written as text, and decode by the same rule: what is not of the alphabet stands for
// itself.
std::string decoded(const std::string& spelling) { return bytes_of_spelling(spelling).value_or(spelling); }

}  // namespace

Result<Vocabulary> Vocabulary::build(std::vector<VocabEntry> entries, std::span<const AddedToken> added) {
  Vocabulary vocabulary;
  int64_t max_id = -1;
  for (const VocabEntry& entry : entries) {
    if (entry.id < 0 || entry.id > kMaxId)
      return invalid_argument("model.vocab",
                              "model.vocab: the token {} has the id {}, which is not between 0 and {}",
                              excerpt(entry.spelling), entry.id, kMaxId);
    max_id = std::max(max_id, entry.id);
  }
  for (const AddedToken& token : added) max_id = std::max(max_id, int64_t{token.id});
  vocabulary.tokens_.resize(static_cast<size_t>(max_id + 1));
  vocabulary.spellings_.reserve(entries.size());
  for (VocabEntry& entry : entries)
    if (Status status = vocabulary.add_entry(std::move(entry)); !status) return status.error();
  for (size_t i = 0; i < added.size(); ++i)
    if (Status status = vocabulary.add_token(added[i], i); !status) return status.error();
  return vocabulary;
}

Status Vocabulary::add_entry(VocabEntry entry) {
  Token& token = tokens_[static_cast<size_t>(entry.id)];
  if (token.flags != 0)
    return invalid_argument("model.vocab",
                            "model.vocab: the token {} has the id {}, which another token has too",
                            excerpt(entry.spelling), entry.id);
  token.bytes = decoded(entry.spelling);
  token.flags = kKnown;
  const auto [place, is_new] = spellings_.emplace(std::move(entry.spelling), static_cast<int32_t>(entry.id));
  if (!is_new)
    return invalid_argument("model.vocab", "model.vocab: the token {} stands twice, with the ids {} and {}",
                            excerpt(place->first), place->second, entry.id);
  return Done{};
}

Status Vocabulary::add_token(const AddedToken& token, size_t position) {
  const std::string field = fmt::format("added_tokens[{}]", position);
  if (const auto known = find_spelling(token.content); known && *known != token.id)
    return invalid_argument(field, "{}: {} has the id {}, but {} in model.vocab", field,
                            excerpt(token.content), token.id, *known);
  Token& slot = tokens_[static_cast<size_t>(token.id)];
  const bool is_entry = find_spelling(token.content) == token.id;
  if (slot.flags != 0 && !(is_entry && slot.flags == kKnown))
    return invalid_argument(field, "{}: {} has the id {}, which another token has too", field,
                            excerpt(token.content), token.id);
  const auto [place, is_new] = added_.emplace(token.content, token.id);
  if (!is_new)
    return invalid_argument(field, "{}: {} is added twice, with the ids {} and {}", field,
                            excerpt(token.content), place->second, token.id);
  slot.bytes = decoded(token.searched);
  slot.flags = static_cast<uint8_t>(kKnown | kAdded | (token.special ? kSpecial : 0));
  return Done{};
}

std::string_view Vocabulary::bytes(int32_t id) const {
  return has(id, kKnown) ? std::string_view(tokens_[static_cast<size_t>(id)].bytes) : std::string_view();
}

std::optional<int32_t> Vocabulary::find_spelling(std::string_view spelling) const {
  return find(spellings_, spelling);
}
std::optional<int32_t> Vocabulary::find_added(std::string_view content) const {
  return find(added_, content);
}

}  // namespace lockstep::serving::tokenizing
