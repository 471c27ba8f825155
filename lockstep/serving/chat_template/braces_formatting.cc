// "format".format(arguments): replacement fields, conversions and format specifications.
#include <algorithm>
#include <limits>
#include <optional>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/formatting.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

constexpr int kMaxFieldDepth = 3;  // of specifications inside specifications, as in Python

bool is_number_text(std::string_view text) {
  return !text.empty() && text.size() < 9 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

int small_number(std::string_view digits) {
  int value = 0;
  for (const char c : digits) value = value * 10 + (c - '0');
  return value;
}

class SpecReader {
 public:
  SpecReader(Heap& heap, std::string_view text) : heap_(heap), text_(text) {}

  FormatSpec read() {
    FormatSpec spec;
    read_alignment(spec);
    if (const char c = peek(); c == '+' || c == '-' || c == ' ') spec.sign = take();
    if (peek() == '#') spec.is_alternate = take() == '#';
    if (peek() == '0') {
      take();
      if (spec.align == 0) {
        spec.fill = U'0';
        spec.align = '=';
      }
    }
    spec.width = number();
    if (peek() == ',' || peek() == '_') spec.grouping = take();
    if (peek() == '.') {
      take();
      if (peek() < '0' || peek() > '9') heap_.fail("Format specifier missing precision");
      spec.precision = number();
    }
    if (at_ < text_.size()) spec.type = take();
    if (at_ < text_.size()) heap_.fail("Invalid format specifier '{}'", text_.substr(0, 80));
    return spec;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char take() { return text_[at_++]; }
  static bool is_alignment(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

  void read_alignment(FormatSpec& spec) {
    if (text_.empty()) return;
    size_t behind = 0;
    const char32_t fill = next_char(text_, behind);
    if (behind < text_.size() && is_alignment(text_[behind])) {
      spec.fill = fill;
      spec.align = text_[behind];
      at_ = behind + 1;
    } else if (is_alignment(text_[0])) {
      spec.align = take();
    }
  }

  int number() {
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      if (value > std::numeric_limits<int>::max() / 10 - 1)
        heap_.fail("Too many decimal digits in format string");
      value = value * 10 + (take() - '0');
    }
    return value;
  }

  Heap& heap_;
  std::string_view text_;
  size_t at_ = 0;
};

void append_with_spec(TextBuilder& out, const Value& value, std::string_view spec_text) {
  Heap& heap = out.heap();
  if (spec_text.empty()) return append_str(out, value);
  const FormatSpec spec = SpecReader(heap, spec_text).read();
  const auto is_one_of = [&](std::string_view types) {
    return types.find(spec.type) != std::string_view::npos;
  };
  constexpr std::string_view kRealTypes = "eEfFgG%n";
  if (value.is(Kind::kText)) {
    if ((spec.type != 0 && spec.type != 's') || spec.sign != '-' || spec.align == '=' || spec.grouping != 0)
      heap.fail("Invalid format specifier '{}' for object of type 'str'", spec_text);
    return append_formatted(out, value.view(), spec);
  }
  if (value.is_integral() && (spec.type == 0 || is_one_of("bdoxXn"))) {
    if (spec.precision >= 0) heap.fail("Precision not allowed in integer format specifier");
    return append_formatted(out, value.to_integer(), spec);
  }
  if (value.is_number() && (spec.type == 0 || is_one_of(kRealTypes)))
    return append_formatted(out, as_real(heap, value), spec);
  if (value.is_number())
    heap.fail("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  heap.fail("unsupported format string passed to {}.__format__", type_name(value));
}

class Braces {
 public:
  Braces(Heap& heap, const CallArguments& arguments) : heap_(heap), arguments_(arguments) {}

  void write(TextBuilder& out, std::string_view format, int depth) {
    if (depth > kMaxFieldDepth) heap_.fail("Max string recursion exceeded");
    size_t at = 0;
    while (at < format.size()) {
      const size_t brace = std::min(format.find_first_of("{}", at), format.size());
      out += format.substr(at, brace - at);
      if (brace == format.size()) return;
      if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
        out += format[brace];
        at = brace + 2;
      } else if (format[brace] == '}') {
        heap_.fail("Single '}}' encountered in format string");
      } else {
        const size_t end = field_end(format, brace + 1);
        write_field(out, format.substr(brace + 1, end - brace - 1), depth);
        at = end + 1;
      }
    }
  }

 private:
  size_t field_end(std::string_view format, size_t at) const {
    for (int depth = 1; at < format.size(); ++at) {
      depth += format[at] == '{' ? 1 : format[at] == '}' ? -1 : 0;
      if (depth == 0) return at;
    }
    heap_.fail("expected '}}' before end of string");
  }

  // name[!conversion][:spec]
  void write_field(TextBuilder& out, std::string_view field, int depth) {
    const size_t name_end = std::min(end_of_name(field), field.size());
    Value value = find(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        heap_.fail("expected ':' after conversion specifier");
      value = converted(value, rest[1]);
      rest.remove_prefix(2);
    }
    TextBuilder spec(heap_);
    if (!rest.empty()) write(spec, rest.substr(1), depth + 1);
    append_with_spec(out, value, spec.bytes());
  }

  // Behind the name: at '!' or ':' outside of [index].
  static size_t end_of_name(std::string_view field) {
    bool inside = false;
    for (size_t i = 0; i < field.size(); ++i) {
      if (field[i] == '[') inside = true;
      if (field[i] == ']') inside = false;
      if (!inside && (field[i] == '!' || field[i] == ':')) return i;
    }
    return field.size();
  }

  Value converted(const Value& value, char conversion) {
    if (conversion == 's') return to_text(heap_, value);
    if (conversion == 'r') return heap_.text(repr(heap_, value));
    heap_.fail("Unknown conversion specifier {}", conversion);
  }

  Value find(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = find_argument(name.substr(0, first_end));
    for (size_t at = first_end; at < name.size();) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) heap_.fail("Empty attribute in format string");
        value = get_attribute(heap_, value, name.substr(at + 1, end - at - 1));
        at = end;
        continue;
      }
      const size_t end = name[at] == '[' ? name.find(']', at) : std::string_view::npos;
      if (end == std::string_view::npos)
        heap_.fail("Only '.' or '[' may follow ']' in format field specifier");
      const std::string_view key = name.substr(at + 1, end - at - 1);
      if (key.empty()) heap_.fail("Empty attribute in format string");
      value =
          get_item(heap_, value, is_number_text(key) ? Value::integer(small_number(key)) : heap_.text(key));
      at = end + 1;
    }
    return value;
  }

  Value find_argument(std::string_view name) {
    if (name.empty() || is_number_text(name)) {
      const Numbering wanted = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
      if (numbering_ != Numbering::kUnknown && numbering_ != wanted)
        heap_.fail("cannot switch between automatic and manual field numbering");
      numbering_ = wanted;
      const auto idx = static_cast<size_t>(name.empty() ? next_++ : small_number(name));
      if (idx >= arguments_.positional.size())
        heap_.fail("Replacement index {} out of range for positional args tuple", idx);
      return arguments_.positional[idx];
    }
    for (const auto& [key, value] : arguments_.keywords)
      if (key == name) return value;
    heap_.fail("the format names '{}', which is not among the arguments", name);
  }

  enum class Numbering : uint8_t { kUnknown, kAutomatic, kManual };

  Heap& heap_;
  const CallArguments& arguments_;
  Numbering numbering_ = Numbering::kUnknown;
  int next_ = 0;
};

}  // namespace

Value format_braces(Heap& heap, const Value& format, const CallArguments& arguments) {
  if (format.text().is_markup) heap.fail("formatting of markup text (from safe or escape) is not supported");
  TextBuilder out(heap);
  Braces(heap, arguments).write(out, format.view(), 1);
  return out.finish();
}

}  // namespace lockstep::serving::jinja
