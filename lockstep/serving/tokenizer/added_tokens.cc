#include "lockstep/serving/tokenizer/added_tokens.h"

#include <algorithm>

#include "lockstep/serving/tokenizer/unicode.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

size_t character_before(std::string_view text, size_t position) {
  return boundary_at_or_before(text, position - 1);
}

bool word_ends_at(std::string_view text, size_t position) {
  return position > 0 && is_word_character(code_point_at(text, character_before(text, position)).value);
}

bool word_starts_at(std::string_view text, size_t position) {
  return position < text.size() && is_word_character(code_point_at(text, position).value);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  for (size_t i = 0; i < tokens_.size(); ++i) insert(tokens_[i].searched, static_cast<int32_t>(i));
}

void AddedTokenFinder::insert(std::string_view content, int32_t token) {
  LOCKSTEP_CHECK(!content.empty(), "added token {} has 0 bytes", token);
  int32_t node = 0;
  for (const char byte : content) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_[static_cast<size_t>(node)].children.emplace_back(static_cast<unsigned char>(byte), next);
      nodes_.emplace_back();
    }
    node = next;
  }
  starts_token_[static_cast<unsigned char>(content[0])] = true;
  int32_t& owner = nodes_[static_cast<size_t>(node)].token;
  if (owner < 0) owner = token;
}

int32_t AddedTokenFinder::child(int32_t node, char byte) const {
  for (const auto& [label, next] : nodes_[static_cast<size_t>(node)].children)
    if (label == static_cast<unsigned char>(byte)) return next;
  return -1;
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_token_[static_cast<unsigned char>(text[begin])]) continue;
    Match longest;
    int32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      node = child(node, text[i]);
      if (node < 0) break;
      if (const int32_t token = nodes_[static_cast<size_t>(node)].token; token >= 0)
        longest = {token, begin, i + 1};
    }
    if (longest.token >= 0) return longest;
  }
  return {};
}

std::vector<TextSpan> AddedTokenFinder::split(std::string_view text) const {
  std::vector<TextSpan> spans;
  size_t taken = 0;  // where the span before ended
  size_t from = 0;
  while (from < text.size() && !finds_nothing()) {
    const Match match = find(text, from);
    if (match.token < 0) break;
    from = match.end;
    const AddedToken& token = tokens_[static_cast<size_t>(match.token)];
    if (token.single_word && (word_ends_at(text, match.begin) || word_starts_at(text, match.end))) continue;
    const size_t begin =
        token.lstrip ? std::max(skip_white_space_back(text, match.begin), taken) : match.begin;
    const size_t end = token.rstrip ? skip_white_space(text, match.end) : match.end;
    if (end <= begin) continue;  // it lies in space that the token before took along
    if (taken < begin) spans.push_back({-1, text.substr(taken, begin - taken)});
    spans.push_back({token.id, text.substr(begin, end - begin)});
    taken = end;
  }
  if (taken < text.size()) spans.push_back({-1, text.substr(taken)});
  return spans;
}

}  // namespace lockstep::serving::tokenizing
