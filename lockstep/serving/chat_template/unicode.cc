#include "lockstep/serving/chat_template/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "lockstep/serving/chat_template/char_ranges.h"
#include "lockstep/serving/chat_template/full_case.h"

namespace lockstep::serving::jinja {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

const utf8proc_uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

// The length of the valid character at the start of `text`, or 0.
size_t valid_prefix(std::string_view text) {
  utf8proc_int32_t c = 0;
  const auto length = utf8proc_iterate(bytes_of(text), static_cast<utf8proc_ssize_t>(text.size()), &c);
  return length > 0 ? static_cast<size_t>(length) : 0;
}

int category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

template <size_t kSize>
bool is_in(const std::array<CharRange, kSize>& ranges, char32_t c) {
  const auto found = std::lower_bound(ranges.begin(), ranges.end(), c,
                                      [](const CharRange& range, char32_t key) { return range.last < key; });
  return found != ranges.end() && found->first <= c;
}

const FullCase* full_case(char32_t c) {
  if (c < kFullCase.front().character) return nullptr;
  const auto found =
      std::lower_bound(kFullCase.begin(), kFullCase.end(), c,
                       [](const FullCase& entry, char32_t key) { return entry.character < key; });
  return found != kFullCase.end() && found->character == c ? &*found : nullptr;
}

void append_chars(std::string& out, std::u32string_view chars) {
  for (const char32_t c : chars) append_char(out, c);
}

void append_upper(std::string& out, char32_t c) {
  if (const FullCase* full = full_case(c)) return append_chars(out, full->upper);
  append_char(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const FullCase* full = full_case(c)) return append_chars(out, full->title);
  append_char(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// Unicode's Case_Ignorable, without the few letters of scripts that have no sigma.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == U'\'' || c == U'.' || c == U':' || c == U'^' || c == U'`' || c == 0xB7 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

// Greek capital sigma ends a word as another letter than it has inside one.
bool is_final_sigma(const std::u32string& chars, size_t at) {
  size_t i = at;
  while (i > 0 && is_case_ignorable(chars[i - 1])) --i;
  if (i == 0 || !is_cased(chars[i - 1])) return false;
  i = at + 1;
  while (i < chars.size() && is_case_ignorable(chars[i])) ++i;
  return i == chars.size() || !is_cased(chars[i]);
}

void append_lower(std::string& out, const std::u32string& chars, size_t at) {
  const char32_t c = chars[at];
  if (c == 0x130) return append_chars(out, U"i\u0307");
  if (c == 0x3A3) return append_char(out, is_final_sigma(chars, at) ? 0x3C2 : 0x3C3);
  append_char(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = valid_prefix(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = valid_prefix(text);
    out += length > 0 ? text.substr(0, length) : kReplacement;
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

size_t count_chars(std::string_view text) {
  size_t continuations = 0;
  for (const char c : text) continuations += (static_cast<unsigned char>(c) & 0xC0) == 0x80;
  return text.size() - continuations;
}

size_t byte_offset(std::string_view text, size_t char_idx) {
  size_t offset = 0;
  while (offset < text.size()) {
    if ((static_cast<unsigned char>(text[offset]) & 0xC0) != 0x80 && char_idx-- == 0) return offset;
    ++offset;
  }
  return offset;
}

char32_t next_char(std::string_view text, size_t& offset) {
  const auto first = static_cast<unsigned char>(text[offset]);
  if (first < 0x80) {
    ++offset;
    return first;
  }
  utf8proc_int32_t c = 0;
  const std::string_view rest = text.substr(offset);
  const auto length = utf8proc_iterate(bytes_of(rest), static_cast<utf8proc_ssize_t>(rest.size()), &c);
  offset += length > 0 ? static_cast<size_t>(length) : 1;
  return length > 0 ? static_cast<char32_t>(c) : 0xFFFD;
}

size_t previous_offset(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

void append_char(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::u32string to_chars(std::string_view text) {
  std::u32string chars;
  chars.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) chars += next_char(text, offset);
  return chars;
}

bool is_space(char32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  const int kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) { return is_in(kOtherDigits, c) || is_decimal(c); }

bool is_numeric(char32_t c) {
  const int kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO) || is_in(kNumericLetters, c);
}

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || is_in(kOtherUpper, c); }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || is_in(kOtherLower, c); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_word(char32_t c) { return c == U'_' || is_alpha(c) || is_numeric(c); }

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    std::transform(text.begin(), text.end(), std::back_inserter(out), ascii_upper);
    return out;
  }
  for (const char32_t c : to_chars(text)) append_upper(out, c);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    std::transform(text.begin(), text.end(), std::back_inserter(out), ascii_lower);
    return out;
  }
  const std::u32string chars = to_chars(text);
  for (size_t i = 0; i < chars.size(); ++i) append_lower(out, chars, i);
  return out;
}

std::string to_title(std::string_view text) {
  const std::u32string chars = to_chars(text);
  std::string out;
  bool inside_word = false;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (inside_word)
      append_lower(out, chars, i);
    else
      append_title(out, chars[i]);
    inside_word = is_cased(chars[i]);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  const std::u32string chars = to_chars(text);
  std::string out;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (i == 0)
      append_title(out, chars[i]);
    else
      append_lower(out, chars, i);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  const std::u32string chars = to_chars(text);
  std::string out;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (is_upper(chars[i]))
      append_lower(out, chars, i);
    else if (is_lower(chars[i]))
      append_upper(out, chars[i]);
    else
      append_char(out, chars[i]);
  }
  return out;
}

std::string fold_case(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const auto length =
      utf8proc_map(bytes_of(text), static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(folded, &std::free);
  if (length < 0) return std::string(text);
  return std::string(reinterpret_cast<const char*>(folded), static_cast<size_t>(length));
}

std::string_view strip_left(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    size_t behind = offset;
    if (!is_space(next_char(text, behind))) break;
    offset = behind;
  }
  return text.substr(offset);
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t start = previous_offset(text, end);
    size_t offset = start;
    if (!is_space(next_char(text, offset))) break;
    end = start;
  }
  return text.substr(0, end);
}

}  // namespace lockstep::serving::jinja
