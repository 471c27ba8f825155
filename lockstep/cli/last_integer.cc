#include "lockstep/cli/last_integer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

namespace lockstep::cli {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A comma with three digits behind it and a digit before it groups thousands.
bool groups_thousands(std::string_view text, size_t at) {
  if (text[at] != ',' || at == 0 || !is_digit(text[at - 1]) || at + 3 >= text.size()) return false;
  const bool three = is_digit(text[at + 1]) && is_digit(text[at + 2]) && is_digit(text[at + 3]);
  return three && (at + 4 >= text.size() || !is_digit(text[at + 4]));
}

}  // namespace

std::optional<int64_t> last_integer(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && !is_digit(text[end - 1])) --end;
  if (end == 0) return std::nullopt;
  std::string digits;
  size_t begin = end;
  while (begin > 0 && (is_digit(text[begin - 1]) || groups_thousands(text, begin - 1))) {
    if (text[begin - 1] != ',') digits.push_back(text[begin - 1]);
    --begin;
  }
  const bool signed_here = begin > 0 && text[begin - 1] == '-';
  const bool after_word = begin > 1 && std::isalnum(static_cast<unsigned char>(text[begin - 2])) != 0;
  if (signed_here && !after_word) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  int64_t value = 0;
  const auto [at, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc()) return std::nullopt;
  return value;
}

}  // namespace lockstep::cli
