// "format" % arguments.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/formatting.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

class Printf {
 public:
  Printf(Heap& heap, std::string_view format, const Value& arguments)
      : heap_(heap), format_(format), arguments_(arguments), out_(heap) {}

  Value run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_ += format_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ < format_.size()) write_conversion();
    }
    if (next_ < num_positional() && !is_mapping())
      heap_.fail("not all arguments converted during string formatting");
    return out_.finish();
  }

 private:
  // Python takes anything that can be subscripted, but tuples and texts, for a mapping.
  bool is_mapping() const {
    return arguments_.is(Kind::kUndefined) || arguments_.is(Kind::kDict) || arguments_.is(Kind::kList) ||
           arguments_.is(Kind::kRange);
  }
  size_t num_positional() const { return arguments_.is(Kind::kTuple) ? arguments_.items().size() : 1; }

  char take() {
    if (at_ >= format_.size()) heap_.fail("incomplete format in \"{}\"", format_.substr(0, 80));
    return format_[at_++];
  }
  char peek() const { return at_ < format_.size() ? format_[at_] : '\0'; }

  Value next_argument() {
    if (next_ >= num_positional()) heap_.fail("not enough arguments for format string");
    ++next_;
    return arguments_.is(Kind::kTuple) ? arguments_.items()[next_ - 1] : arguments_;
  }

  Value named_argument() {
    if (!arguments_.is(Kind::kDict)) heap_.fail("format requires a mapping");
    const size_t start = at_;
    for (int depth = 1; depth > 0;) {
      const char c = take();
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    const std::string_view name = format_.substr(start, at_ - 1 - start);
    const Value* found = arguments_.dict().find(name);
    if (found == nullptr) heap_.fail("the format names '{}', which is not among the arguments", name);
    return *found;
  }

  int number() {
    if (peek() == '*') heap_.fail("a width or precision of * is not supported");
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      if (value > std::numeric_limits<int>::max() / 10 - 1) heap_.fail("width or precision is too big");
      value = value * 10 + (take() - '0');
    }
    return value;
  }

  void read_flags(FormatSpec& spec) {
    bool zero = false;
    for (bool more = true; more;) {
      switch (peek()) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          if (spec.sign != '+') spec.sign = ' ';
          break;
        case '#':
          spec.is_alternate = true;
          break;
        case '0':
          zero = true;
          break;
        default:
          more = false;
      }
      if (more) ++at_;
    }
    if (!zero || spec.align != 0) return;
    spec.fill = U'0';
    spec.align = '=';
  }

  void write_conversion() {
    ++at_;  // the percent sign
    std::optional<Value> named;
    if (peek() == '(') {
      ++at_;
      named = named_argument();
    }
    FormatSpec spec;
    read_flags(spec);
    spec.width = number();
    if (peek() == '.') {
      ++at_;
      spec.precision = number();
    }
    if (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    spec.type = take();
    if (spec.type == '%') {
      out_ += '%';
      return;
    }
    write_value(named ? *named : next_argument(), spec);
  }

  void write_value(const Value& value, FormatSpec& spec) {
    switch (spec.type) {
      case 's':
        return write_text(to_text(heap_, value).view(), spec);
      case 'r':
        return write_text(repr(heap_, value), spec);
      case 'c':
        return write_char(value, spec);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return write_integer(value, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return append_formatted(out_, as_real(heap_, value), spec);
      default:
        heap_.fail("unsupported format character '{}'", spec.type);
    }
  }

  void write_text(std::string_view text, FormatSpec spec) {
    spec.fill = U' ';
    if (spec.align != '<') spec.align = '>';
    append_formatted(out_, text, spec);
  }

  void write_char(const Value& value, const FormatSpec& spec) {
    std::string text;
    if (value.is_integral()) {
      const Integer code = value.to_integer();
      if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        heap_.fail("%c is not given a character");
      append_char(text, static_cast<char32_t>(code));
    } else if (value.is(Kind::kText) && value.text().num_chars == 1) {
      text = value.view();
    } else {
      heap_.fail("%c requires int or char");
    }
    write_text(text, spec);
  }

  void write_integer(const Value& value, FormatSpec& spec) {
    if (value.is(Kind::kUndefined)) heap_.fail_undefined(value);
    const bool is_decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_integral() && !(is_decimal && value.is(Kind::kFloat)))
      heap_.fail("%{} format: {} is required, not {}", spec.type, is_decimal ? "a real number" : "an integer",
                 type_name(value));
    const Integer integer = value.is(Kind::kFloat) ? truncate(heap_, value.to_real()) : value.to_integer();
    spec.min_digits = spec.precision;
    append_formatted(out_, integer, spec);
  }

  Heap& heap_;
  std::string_view format_;
  const Value& arguments_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t next_ = 0;
};

}  // namespace

Value format_printf(Heap& heap, const Value& format, const Value& arguments) {
  if (format.text().is_markup) heap.fail("formatting of markup text (from safe or escape) is not supported");
  return Printf(heap, format.view(), arguments).run();
}

}  // namespace lockstep::serving::jinja
