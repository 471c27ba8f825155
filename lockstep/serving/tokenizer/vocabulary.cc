#include "lockstep/serving/tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

#include "lockstep/serving/tokenizer/json_fields.h"

namespace lockstep::serving::tokenizing {
namespace {

std::optional<int32_t> find(const auto& index, std::string_view key) {
  const auto found = index.find(key);
  return found == index.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

Result<Vocabulary> Vocabulary::build(std::vector<VocabEntry> entries, std::span<const AddedToken> added,
                                     const TokenDecoder& decoder) {
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
  if (decoder.rule().first_differs) vocabulary.first_forms_.resize(vocabulary.tokens_.size());
  vocabulary.spellings_.reserve(entries.size());
  for (VocabEntry& entry : entries)
    if (Status status = vocabulary.add_entry(std::move(entry), decoder); !status) return status.error();
  for (size_t i = 0; i < added.size(); ++i)
    if (Status status = vocabulary.add_token(added[i], i, decoder); !status) return status.error();
  return vocabulary;
}

void Vocabulary::set_form(int32_t id, const std::string& spelling, uint8_t flags,
                          const TokenDecoder& decoder) {
  TokenForm form = decoder.form_of(spelling);
  Token& token = tokens_[static_cast<size_t>(id)];
  token.bytes = std::move(form.text);
  token.flags = static_cast<uint8_t>(flags | (form.is_byte ? kByte : 0));
  if (!first_forms_.empty()) first_forms_[static_cast<size_t>(id)] = std::move(form.first);
}

Status Vocabulary::add_entry(VocabEntry entry, const TokenDecoder& decoder) {
  const auto id = static_cast<int32_t>(entry.id);
  if (is_known(id))
    return invalid_argument("model.vocab",
                            "model.vocab: the token {} has the id {}, which another token has too",
                            excerpt(entry.spelling), entry.id);
  set_form(id, entry.spelling, kKnown, decoder);
  const auto [place, is_new] = spellings_.emplace(std::move(entry.spelling), id);
  if (!is_new)
    return invalid_argument("model.vocab", "model.vocab: the token {} stands twice, with the ids {} and {}",
                            excerpt(place->first), place->second, entry.id);
  return Done{};
}

Status Vocabulary::add_token(const AddedToken& token, size_t position, const TokenDecoder& decoder) {
  const std::string field = fmt::format("added_tokens[{}]", position);
  if (const auto known = find_spelling(token.content); known && *known != token.id)
    return invalid_argument(field, "{}: {} has the id {}, but {} in model.vocab", field,
                            excerpt(token.content), token.id, *known);
  const bool is_entry = find_spelling(token.content) == token.id;
  if (is_known(token.id) && (!is_entry || is_added(token.id)))
    return invalid_argument(field, "{}: {} has the id {}, which another token has too", field,
                            excerpt(token.content), token.id);
  const auto [place, is_new] = added_.emplace(token.content, token.id);
  if (!is_new)
    return invalid_argument(field, "{}: {} is added twice, with the ids {} and {}", field,
                            excerpt(token.content), place->second, token.id);
  set_form(token.id, token.searched, static_cast<uint8_t>(kKnown | kAdded | (token.special ? kSpecial : 0)),
           decoder);
  return Done{};
}

std::string_view Vocabulary::bytes(int32_t id) const {
  return has(id, kKnown) ? std::string_view(tokens_[static_cast<size_t>(id)].bytes) : std::string_view();
}

std::string_view Vocabulary::first_bytes(int32_t id) const {
  if (first_forms_.empty() || !has(id, kKnown)) return bytes(id);
  return first_forms_[static_cast<size_t>(id)];
}

std::optional<int32_t> Vocabulary::find_spelling(std::string_view spelling) const {
  return find(spellings_, spelling);
}
std::optional<int32_t> Vocabulary::find_added(std::string_view content) const {
  return find(added_, content);
}

}  // namespace lockstep::serving::tokenizing
