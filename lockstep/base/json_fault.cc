#include "lockstep/base/json_fault.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// The syntax up to a place: what is open there, and what came last.
struct Syntax {
  enum class Last : unsigned char { kNothing, kOpening, kComma, kColon, kKey, kValue };
  Last last = Last::kNothing;
  std::vector<char> open;  // '{' and '['

  bool in_object() const { return !open.empty() && open.back() == '{'; }
};

bool is_mark(char c) { return std::string_view("{}[],:").find(c) != std::string_view::npos; }
bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_number_begin(char c) { return c == '-' || is_digit(c); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word_of_json(std::string_view token) {
  return token == "true" || token == "false" || token == "null";
}

// Marks are tokens of their own; a string goes to its closing quote, anything else to a space or a mark.
size_t end_of_token(std::string_view text, size_t begin) {
  if (is_mark(text[begin])) return begin + 1;
  size_t at = begin + 1;
  if (text[begin] == '"') {
    while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? size_t{2} : size_t{1};
    return std::min(at + 1, text.size());
  }
  while (at < text.size() && !is_mark(text[at]) && !is_space(text[at]) && text[at] != '"') ++at;
  return at;
}

void take(std::string_view token, Syntax& syntax) {
  using Last = Syntax::Last;
  const char c = token.front();
  if (c == '{' || c == '[') {
    syntax.open.push_back(c);
    syntax.last = Last::kOpening;
  } else if (c == '}' || c == ']') {
    if (!syntax.open.empty()) syntax.open.pop_back();
    syntax.last = Last::kValue;
  } else if (c == ',') {
    syntax.last = Last::kComma;
  } else if (c == ':') {
    syntax.last = Last::kColon;
  } else {
    const bool is_key = syntax.in_object() && (syntax.last == Last::kOpening || syntax.last == Last::kComma);
    syntax.last = is_key ? Last::kKey : Last::kValue;
  }
}

std::string_view expected_after(const Syntax& syntax) {
  switch (syntax.last) {
    case Syntax::Last::kNothing:
    case Syntax::Last::kColon:
      return "a value";
    case Syntax::Last::kOpening:
      return syntax.in_object() ? "a key in double quotes or '}'" : "a value or ']'";
    case Syntax::Last::kComma:
      return syntax.in_object() ? "a key in double quotes" : "a value";
    case Syntax::Last::kKey:
      return "':'";
    case Syntax::Last::kValue:
      break;
  }
  if (syntax.open.empty()) return "the end of the text";
  return syntax.in_object() ? "',' or '}'" : "',' or ']'";
}

std::string name_of_byte(char c) {
  if (c == '\'' || c == '"' || c == '\\') return std::string("the character ") + c;
  return c > ' ' && c < 127 ? fmt::format("'{}'", c)
                            : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(c));
}

// A string that does not end as one, whose last byte is what it broke at.
std::string fault_of_string(std::string_view token) {
  const auto last = static_cast<unsigned char>(token.back());
  if (last < 0x20)
    return fmt::format("a string holds the control character 0x{:02x}, which must be written as an escape",
                       last);
  if (token.find('\\') != std::string_view::npos && last < 0x80)
    return "a string holds an escape that JSON does not have";
  return fmt::format("a string holds byte 0x{:02x} where UTF-8 has none such", last);
}

bool is_whole_string(std::string_view token) { return token.size() >= 2 && token.ends_with('"'); }

// A number or a word that is none; empty for all else.
std::string fault_of_scalar(std::string_view token) {
  if (token.empty()) return {};
  if (is_number_begin(token.front())) return is_digit(token.back()) ? "" : "a digit is missing in a number";
  if (is_letter(token.front()) && !is_word_of_json(token)) return "a word is none of true, false and null";
  return {};
}

std::string what_stands_there(std::string_view token) {
  const char first = token.front();
  if (first == '"') return "a string";
  if (is_number_begin(first)) return fmt::format("the number {}", token);
  if (is_word_of_json(token)) return std::string(token);
  return name_of_byte(first);
}

std::string what_is_wrong(std::string_view text, size_t position, std::string_view number, JsonFault fault) {
  if (fault == JsonFault::kNumberTooLarge) return fmt::format("the number {} is too large", number);
  const std::string_view read = text.substr(0, std::min(position, text.size()));
  const bool at_end = position > text.size();
  Syntax before, after;  // the last token
  std::string_view last, one_before;
  for (size_t at = 0; at < read.size();) {
    if (is_space(read[at])) {
      ++at;
      continue;
    }
    const size_t end = end_of_token(read, at);
    one_before = std::exchange(last, read.substr(at, end - at));
    before = after;
    take(last, after);
    at = end;
  }
  if (!last.empty() && last.front() == '"' && !is_whole_string(last))
    return at_end ? "the text ends within a string" : fault_of_string(last);
  if (std::string scalar = fault_of_scalar(last); !scalar.empty()) return scalar;
  if (at_end || last.empty())
    return fmt::format("the text ends where {} was expected", expected_after(after));
  // What ended a number or a word is not what is wrong.
  const bool is_adjacent = one_before.data() + one_before.size() == last.data();
  if (std::string scalar = fault_of_scalar(one_before); is_adjacent && !scalar.empty()) return scalar;
  return fmt::format("{} stands where {} was expected", what_stands_there(last), expected_after(before));
}

}  // namespace

std::string json_fault(std::string_view text, size_t position, std::string_view token, JsonFault fault) {
  const std::string_view before = text.substr(0, position == 0 ? 0 : std::min(position - 1, text.size()));
  const size_t line_end = before.rfind('\n');
  const size_t line_begin = line_end == std::string_view::npos ? 0 : line_end + 1;
  const size_t number_begin = token.find_first_of("-0123456789");  // `token` may hold marks before it
  const std::string_view number = token.substr(std::min(number_begin, token.size()));
  return fmt::format("not JSON at byte {} (line {}, column {}): {}", position,
                     std::ranges::count(before, '\n') + 1, before.size() - line_begin + 1,
                     what_is_wrong(text, position, number, fault));
}

}  // namespace lockstep
