#include "lockstep/serving/chat_template/string_literal.h"

#include <optional>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

std::optional<char> short_escape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return std::nullopt;
  }
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int letter = (c | 32) - 'a';
  return letter >= 0 && letter < 6 ? letter + 10 : 99;
}

class Unescaper {
 public:
  Unescaper(std::string_view literal, int line) : literal_(literal), line_(line) {}

  std::string run() {
    while (at_ < literal_.size()) {
      const char c = literal_[at_++];
      if (c == '\\' && at_ < literal_.size())
        escape(literal_[at_++]);
      else
        out_ += c;
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string message) const { throw Failure{std::move(message), line_}; }

  void escape(char c) {
    if (const auto plain = short_escape(c)) {
      out_ += *plain;
    } else if (c == '\n') {
      // a line that goes on
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code(hex(c == 'x' ? 2 : c == 'u' ? 4 : 8, c));
    } else if (c >= '0' && c <= '7') {
      append_code(octal(c));
    } else if (c == 'N') {
      fail("the escape \\N{...} is not supported; write \\u and the character's number");
    } else {
      out_ += '\\';
      out_ += c;
    }
  }

  uint32_t hex(size_t num_digits, char marker) {
    uint32_t value = 0;
    for (size_t i = 0; i < num_digits; ++i) {
      const int digit = at_ < literal_.size() ? digit_of(literal_[at_]) : 99;
      if (digit > 15)
        fail(fmt::format("the escape \\{} in a string needs {} hexadecimal digits", marker, num_digits));
      value = value * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return value;
  }

  uint32_t octal(char first) {
    auto value = static_cast<uint32_t>(first - '0');
    for (int i = 0; i < 2 && at_ < literal_.size() && literal_[at_] >= '0' && literal_[at_] <= '7'; ++i)
      value = value * 8 + static_cast<uint32_t>(literal_[at_++] - '0');
    return value;
  }

  void append_code(uint32_t code) {
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail(fmt::format("the escape for U+{:04X} in a string is no character", code));
    append_char(out_, code);
  }

  std::string_view literal_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string unescape(std::string_view literal, int line) { return Unescaper(literal, line).run(); }

}  // namespace lockstep::serving::jinja
