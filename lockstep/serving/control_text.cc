#include "lockstep/serving/control_text.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

namespace lockstep::serving {
namespace {

constexpr std::string_view kOpen = "\xEE\x80\x80", kClose = "\xEE\x80\x81";  // U+E000 and U+E001, private use

std::string make_open() {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}:", kOpen, random(), random());
}

}  // namespace

ControlSpellings::ControlSpellings(std::vector<std::string> spellings) : sorted_(std::move(spellings)) {
  std::erase(sorted_, std::string());
  std::sort(sorted_.begin(), sorted_.end());
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end()), sorted_.end());
  for (const std::string& spelling : sorted_) is_first_byte_[static_cast<unsigned char>(spelling[0])] = true;
}

ControlSpellings::Found ControlSpellings::find(std::string_view text, size_t at) const {
  for (size_t place = at; place < text.size(); ++place) {
    if (!is_first_byte_[static_cast<unsigned char>(text[place])]) continue;
    if (const auto which = longest_at(text.substr(place))) return {place, *which};
  }
  return {};
}

std::optional<size_t> ControlSpellings::longest_at(std::string_view text) const {
  // [first, last) are the spellings that begin with text's first `depth` bytes; a shorter one sorts before a
  // longer one.
  auto first = sorted_.begin(), last = sorted_.end();
  std::optional<size_t> longest;
  for (size_t depth = 0; first != last; ++depth) {
    if (first->size() == depth) longest = static_cast<size_t>(first++ - sorted_.begin());
    if (depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[depth]);
    const auto at_depth = [depth](const std::string& s) { return static_cast<unsigned char>(s[depth]); };
    first = std::partition_point(first, last, [&](const std::string& s) { return at_depth(s) < byte; });
    last = std::partition_point(first, last, [&](const std::string& s) { return at_depth(s) == byte; });
  }
  return longest;
}

ControlText::ControlText(const ControlSpellings& spellings) : spellings_(spellings) {}

void ControlText::hide(Json& value) {
  if (value.is_string()) hide_in(value.get_ref<std::string&>());
  if (value.is_structured())
    for (Json& inner : value) hide(inner);
}

void ControlText::hide_in(std::string& text) {
  std::string out;
  size_t at = 0;
  for (auto found = spellings_.find(text, 0); found.place != std::string::npos;
       found = spellings_.find(text, at)) {
    if (open_.empty()) open_ = make_open();
    out.append(text, at, found.place - at).append(open_).append(std::to_string(found.which)).append(kClose);
    at = found.place + spellings_.spelling(found.which).size();
  }
  if (at > 0) text = out.append(text, at);
}

std::vector<int32_t> ControlText::encode(const Tokenizer& tokenizer, std::string& rendered) const {
  if (open_.empty()) return tokenizer.encode(rendered, AddedTokens::kParse);
  std::vector<int32_t> ids;
  std::string text;
  const auto add = [&](std::string_view piece, AddedTokens added_tokens) {
    const auto more = tokenizer.encode(piece, added_tokens);
    ids.insert(ids.end(), more.begin(), more.end());
    text += piece;
  };
  const std::string_view all = rendered;
  size_t at = 0;
  for (size_t open = all.find(open_); open != std::string_view::npos; open = all.find(open_, open + 1)) {
    const char* const digits = all.data() + open + open_.size();
    size_t which = spellings_.size();
    const auto [end, failure] = std::from_chars(digits, all.data() + all.size(), which);
    const auto close = static_cast<size_t>(end - all.data());
    // A template may have cut a stand-in up: what is left of it is text.
    if (failure != std::errc() || which >= spellings_.size() || !all.substr(close).starts_with(kClose))
      continue;
    if (open > at) add(all.substr(at, open - at), AddedTokens::kParse);
    add(spellings_.spelling(which), AddedTokens::kAsText);
    at = close + kClose.size();
  }
  if (at < all.size()) add(all.substr(at), AddedTokens::kParse);
  rendered = std::move(text);
  return ids;
}

}  // namespace lockstep::serving
