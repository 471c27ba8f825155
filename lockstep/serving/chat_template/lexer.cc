#include "lockstep/serving/chat_template/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/string_literal.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

constexpr size_t kNoPlace = std::string_view::npos;
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// Line ends become \n; the last one goes.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit_of(char c, int base) {
  const int value = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : 99;
  return value < base;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) lex_data();
    push(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  enum class Tag : uint8_t { kBlock, kOutput, kComment };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Failure{fmt::format(format, std::forward<Args>(args)...), line_};
  }

  Token& push(TokenKind kind, std::string_view text) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = text;
    return token;
  }

  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  void advance(size_t num_bytes) {
    const std::string_view passed = text_.substr(at_, num_bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    at_ += passed.size();
  }

  size_t num_spaces_at(size_t offset) const {
    const std::string_view rest = text_.substr(offset);
    return rest.size() - strip_left(rest).size();
  }

  size_t find_tag() const {
    for (size_t i = text_.find('{', at_); i != kNoPlace; i = text_.find('{', i + 1)) {
      if (i + 1 == text_.size()) return kNoPlace;
      if (const char c = text_[i + 1]; c == '%' || c == '{' || c == '#') return i;
    }
    return kNoPlace;
  }

  // The text before a tag, after what the tag's sign or lstrip_blocks takes from its end.
  std::string_view data_before(size_t tag, char sign, Tag kind) const {
    const std::string_view data = text_.substr(at_, tag - at_);
    if (sign == '-') return strip_right(data);
    if (sign == '+' || kind == Tag::kOutput) return data;
    const size_t line_start = data.rfind('\n') + 1;  // npos + 1 is 0
    if (line_start == 0 && !at_line_start_) return data;
    return strip_left(data.substr(line_start)).empty() ? data.substr(0, line_start) : data;
  }

  char sign_at(size_t offset) const {
    const char c = offset < text_.size() ? text_[offset] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void push_data(std::string_view data, size_t tag) {
    if (!data.empty()) push(TokenKind::kData, data);
    advance(tag - at_);
  }

  void lex_data() {
    const size_t tag = find_tag();
    if (tag == kNoPlace) {
      push_data(text_.substr(at_), text_.size());
      return;
    }
    const Tag kind = text_[tag + 1] == '%'   ? Tag::kBlock
                     : text_[tag + 1] == '{' ? Tag::kOutput
                                             : Tag::kComment;
    const char sign = sign_at(tag + 2);
    const size_t raw_size = kind == Tag::kBlock ? raw_begin_size(tag) : 0;
    push_data(data_before(tag, sign, kind), tag);
    at_line_start_ = false;
    if (raw_size > 0) return lex_raw(raw_size);
    if (kind == Tag::kComment) return lex_comment(sign);
    push(kind == Tag::kBlock ? TokenKind::kBlockBegin : TokenKind::kOutputBegin, {});
    advance(sign == '\0' ? 2 : 3);
    lex_tag(kind);
  }

  // The size of "{% raw %}" at `tag`, or 0.
  size_t raw_begin_size(size_t tag) const {
    size_t end = tag + 2 + (sign_at(tag + 2) == '\0' ? 0 : 1);
    end += num_spaces_at(end);
    if (!text_.substr(end).starts_with("raw")) return 0;
    end += 3;
    end += num_spaces_at(end);
    if (text_.substr(end).starts_with("%}")) return end + 2 - tag;
    if (!text_.substr(end).starts_with("-%}")) return 0;
    return end + 3 + num_spaces_at(end + 3) - tag;
  }

  // The size of "endraw %}" (behind the "{%" and its sign) with what it strips, or 0.
  size_t raw_end_size(size_t offset) const {
    size_t end = offset + num_spaces_at(offset);
    if (!text_.substr(end).starts_with("endraw")) return 0;
    end += 6;
    end += num_spaces_at(end);
    const size_t closing = closing_size(end, "%}", Tag::kBlock);
    return closing == 0 ? 0 : end + closing - offset;
  }

  // The size of an end of tag at `offset` with what its sign or trim_blocks takes behind it, or 0.
  size_t closing_size(size_t offset, std::string_view closing, Tag kind) const {
    const std::string_view rest = text_.substr(offset);
    if (rest.starts_with(closing)) {
      const bool trims = kind != Tag::kOutput && rest.substr(closing.size()).starts_with('\n');
      return closing.size() + (trims ? 1 : 0);
    }
    if (!rest.substr(std::min<size_t>(rest.size(), 1)).starts_with(closing)) return 0;
    if (rest.front() == '-') return closing.size() + 1 + num_spaces_at(offset + closing.size() + 1);
    return rest.front() == '+' && kind != Tag::kOutput ? closing.size() + 1 : 0;
  }

  void close_tag(size_t num_bytes) {
    at_line_start_ = num_bytes > 0 && text_[at_ + num_bytes - 1] == '\n';
    advance(num_bytes);
  }

  void lex_raw(size_t begin_size) {
    const int begin_line = line_;
    close_tag(begin_size);
    for (size_t tag = text_.find("{%", at_); tag != kNoPlace; tag = text_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      const size_t name = tag + (sign == '\0' ? 2 : 3);
      const size_t rest_size = raw_end_size(name);
      if (rest_size == 0) continue;
      push_data(data_before(tag, sign, Tag::kBlock), tag);
      close_tag(name - tag + rest_size);
      return;
    }
    throw Failure{"this raw block is never closed; expected {% endraw %}", begin_line};
  }

  void lex_comment(char sign) {
    const size_t content = at_ + (sign == '\0' ? 2 : 3);
    const size_t end = text_.find("#}", content);
    if (end == kNoPlace) fail("this comment is never closed; expected #}}");
    const bool has_sign = end > content && (text_[end - 1] == '-' || text_[end - 1] == '+');
    const size_t closing = has_sign ? end - 1 : end;
    close_tag(closing - at_ + closing_size(closing, "#}", Tag::kComment));
  }

  // Up to the end of a {{ }} or {% %}; brackets that are open hide the end.
  void lex_tag(Tag kind) {
    const std::string_view closing = kind == Tag::kBlock ? "%}" : "}}";
    std::string open_brackets;
    while (at_ < text_.size()) {
      if (open_brackets.empty()) {
        if (const size_t size = closing_size(at_, closing, kind); size > 0) {
          push(kind == Tag::kBlock ? TokenKind::kBlockEnd : TokenKind::kOutputEnd, {});
          close_tag(size);
          return;
        }
      }
      if (const size_t spaces = num_spaces_at(at_); spaces > 0)
        advance(spaces);
      else
        lex_token(open_brackets);
    }
  }

  void lex_token(std::string& open_brackets) {
    const char c = text_[at_];
    if (c >= '0' && c <= '9') return lex_number();
    if (c == '\'' || c == '"') return lex_string(c);
    if (lex_name()) return;
    for (const std::string_view symbol : kOperators) {
      if (!sees(symbol)) continue;
      balance(symbol.front(), open_brackets);
      push(TokenKind::kOperator, symbol);
      advance(symbol.size());
      return;
    }
    size_t end = at_;
    next_char(text_, end);
    fail("unexpected character '{}'", text_.substr(at_, end - at_));
  }

  void balance(char symbol, std::string& open_brackets) const {
    constexpr std::string_view kOpening = "({[", kClosing = ")}]";
    if (kOpening.find(symbol) != kNoPlace) open_brackets += symbol;
    const size_t kind = kClosing.find(symbol);
    if (kind == kNoPlace) return;
    if (open_brackets.empty()) fail("unexpected '{}'", symbol);
    const char expected = kClosing[kOpening.find(open_brackets.back())];
    if (expected != symbol) fail("unexpected '{}', expected '{}'", symbol, expected);
    open_brackets.pop_back();
  }

  bool lex_name() {
    size_t end = at_;
    while (end < text_.size()) {
      size_t behind = end;
      if (!is_word(next_char(text_, behind))) break;
      end = behind;
    }
    if (end == at_) return false;
    push(TokenKind::kName, text_.substr(at_, end - at_));
    advance(end - at_);
    return true;
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("this string is never closed; expected {}", quote);
    Token& token = push(TokenKind::kString, {});
    token.text = unescape(text_.substr(at_ + 1, end - at_ - 1), line_);
    advance(end + 1 - at_);
  }

  // The end of digits with single underscores between them, from `offset` on.
  size_t digits_end(size_t offset, int base) const {
    size_t end = offset;
    while (end < text_.size()) {
      if (is_digit_of(text_[end], base))
        ++end;
      else if (text_[end] == '_' && end > offset && end + 1 < text_.size() &&
               is_digit_of(text_[end + 1], base))
        ++end;
      else
        break;
    }
    return end;
  }

  // Where a float that starts here ends, or the start when it is none.
  size_t float_end() const {
    if (at_ > 0 && text_[at_ - 1] == '.') return at_;
    size_t end = digits_end(at_, 10);
    bool is_float = false;
    if (end < text_.size() && text_[end] == '.' && digits_end(end + 1, 10) > end + 1) {
      end = digits_end(end + 1, 10);
      is_float = true;
    }
    if (end < text_.size() && (text_[end] | 32) == 'e') {
      size_t digits = end + 1;
      if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
      if (digits_end(digits, 10) > digits) {
        end = digits_end(digits, 10);
        is_float = true;
      }
    }
    return is_float ? end : at_;
  }

  std::string without_underscores(size_t start, size_t end) const {
    std::string digits(text_.substr(start, end - start));
    std::erase(digits, '_');
    return digits;
  }

  void lex_number() {
    if (const size_t end = float_end(); end > at_) {
      const std::string digits = without_underscores(at_, end);
      Token& token = push(TokenKind::kFloat, digits);
      // Out of range leaves the value untouched: Python reads 1e999 as infinity and 1e-999 as 0.
      const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
      if (failure == std::errc::result_out_of_range) token.real = std::strtod(digits.c_str(), nullptr);
      advance(end - at_);
      return;
    }
    lex_integer();
  }

  void lex_integer() {
    const char marker =
        at_ + 1 < text_.size() && text_[at_] == '0' ? static_cast<char>(text_[at_ + 1] | 32) : '\0';
    int base = marker == 'x' ? 16 : marker == 'o' ? 8 : marker == 'b' ? 2 : 10;
    size_t start = base == 10 ? at_ : at_ + 2;
    if (base != 10 && start < text_.size() && text_[start] == '_') ++start;
    size_t end = digits_end(start, base);
    if (base != 10 && end == start) {
      base = 10;
      end = digits_end(start = at_, 10);
    }
    if (base == 10 && text_[at_] == '0')  // zeros only, as in Python
      end = std::min(end, std::min(text_.find_first_not_of("0_", at_), text_.size()));
    Integer value = 0;
    for (const char c : without_underscores(start, end)) {
      const int digit = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
      if (__builtin_mul_overflow(value, Integer{base}, &value) ||
          __builtin_add_overflow(value, Integer{digit}, &value))
        fail("an integer of more than 128 bits is not supported");
    }
    push(TokenKind::kInteger, text_.substr(at_, end - at_)).integer = value;
    advance(end - at_);
  }

  const std::string source_;
  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return fmt::format("the string '{}'", token.text.substr(0, byte_offset(token.text, 40)));
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator:
      return fmt::format("'{}'", token.text);
    case TokenKind::kEnd:
      return "the end of the template";
  }
  return "?";
}

}  // namespace lockstep::serving::jinja
