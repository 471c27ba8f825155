#include "lockstep/serving/chat_template/printing.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/functions.h"
#include "lockstep/serving/chat_template/loop.h"
#include "lockstep/serving/chat_template/methods.h"
#include "lockstep/serving/chat_template/syntax.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

constexpr size_t kFlushBytes = 4096;
// The items of the deepest value, and what a view adds. Only namespaces, which can hold themselves, are
// deeper.
constexpr int kMaxPrintDepth = kMaxValueDepth + 4;

void append_quoted_char(std::string& quoted, char32_t c, char quote) {
  if (c == U'\\' || c == static_cast<char32_t>(quote)) {
    quoted += '\\';
    append_char(quoted, c);
  } else if (c == U'\n') {
    quoted += "\\n";
  } else if (c == U'\r') {
    quoted += "\\r";
  } else if (c == U'\t') {
    quoted += "\\t";
  } else if (is_printable(c)) {
    append_char(quoted, c);
  } else if (c < 0x100) {
    quoted += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  } else if (c < 0x10000) {
    quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    quoted += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
}

void append_quoted(TextBuilder& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (size_t offset = 0; offset < text.size();) {
    append_quoted_char(quoted, next_char(text, offset), quote);
    if (quoted.size() < kFlushBytes) continue;
    out += quoted;
    quoted.clear();
  }
  quoted += quote;
  out += quoted;
}

// Writes nested values; its own depth counter, because namespaces can hold themselves.
class Representation {
 public:
  explicit Representation(TextBuilder& out) : out_(out) {}

  void write(const Value& value) {
    out_.heap().step();
    if (++depth_ > kMaxPrintDepth)
      out_.heap().fail("values are nested deeper than {} levels", kMaxPrintDepth);
    write_kind(value);
    --depth_;
  }

 private:
  void write_kind(const Value& value) {
    switch (value.kind()) {
      case Kind::kMissing:
      case Kind::kUndefined:
        out_ += "Undefined";
        break;
      case Kind::kNone:
        out_ += "None";
        break;
      case Kind::kBool:
        out_ += value.to_bool() ? "True" : "False";
        break;
      case Kind::kInt:
        out_ += integer_text(value.to_integer());
        break;
      case Kind::kFloat:
        out_ += real_text(value.to_real());
        break;
      case Kind::kText:
        if (value.text().is_markup) out_ += "Markup(";
        append_quoted(out_, value.view());
        if (value.text().is_markup) out_ += ')';
        break;
      case Kind::kList:
      case Kind::kTuple:
        write_sequence(value);
        break;
      case Kind::kDict:
        write_dict(value.dict());
        break;
      default:
        write_object(value);
    }
  }

  void write_items(const Values& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(items[i]);
    }
  }

  void write_sequence(const Value& value) {
    const bool is_list = value.is(Kind::kList);
    out_ += is_list ? '[' : '(';
    write_items(value.items());
    if (!is_list && value.items().size() == 1) out_ += ',';
    out_ += is_list ? ']' : ')';
  }

  void write_dict(const Dict& dict) {
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!is_first) out_ += ", ";
      is_first = false;
      write(key);
      out_ += ": ";
      write(value);
    }
    out_ += '}';
  }

  void write_range(const Range& range) {
    out_ += fmt::format("range({}, {}", integer_text(range.start), integer_text(range.stop));
    if (range.step != 1) out_ += fmt::format(", {}", integer_text(range.step));
    out_ += ')';
  }

  void write_namespace(const Namespace& space) {
    out_ += "<Namespace {";
    bool is_first = true;
    for (const auto& [name, value] : space.attributes) {
      if (!is_first) out_ += ", ";
      is_first = false;
      append_quoted(out_, name);
      out_ += ": ";
      write(value);
    }
    out_ += "}>";
  }

  // Objects that Python prints with an address are printed without.
  void write_object(const Value& value) {
    switch (value.kind()) {
      case Kind::kRange:
        return write_range(*value.ref<std::shared_ptr<const Range>>());
      case Kind::kView:
        out_ += fmt::format("{}([", type_name(value));
        write_items(iterate(out_.heap(), value).all());
        out_ += "])";
        return;
      case Kind::kNamespace:
        return write_namespace(*value.ref<std::shared_ptr<Namespace>>());
      case Kind::kLoop: {
        Loop& loop = *value.ref<std::shared_ptr<Loop>>();
        out_ += fmt::format("<LoopContext {}/{}>", integer_text(loop.index0 + 1),
                            integer_text(loop.find_length()));
        return;
      }
      case Kind::kMacro:
        out_ +=
            macro_name(value).empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", macro_name(value));
        return;
      case Kind::kMethod: {
        const BoundMethod& method = *value.ref<std::shared_ptr<const BoundMethod>>();
        out_ += fmt::format("<built-in method {} of {} object>", method.method->name, type_name(method.self));
        return;
      }
      case Kind::kFunction:
        out_ += fmt::format("<function {}>", value.ref<const FunctionEntry*>()->name);
        return;
      default:
        out_ += "<generator object>";
    }
  }

  TextBuilder& out_;
  int depth_ = 0;
};

}  // namespace

std::string integer_text(Integer value) { return fmt::format("{}", value); }

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, std::abs(value), std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));  // d[.ddd]e±xx
  const size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  const std::string_view power = text.substr(e + 1);
  int exponent = 0;
  std::from_chars(power.data() + (power.front() == '+' ? 1 : 0), power.data() + power.size(), exponent);

  const std::string sign = std::signbit(value) ? "-" : "";
  const int num_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = num_digits > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (exponent + 1 >= num_digits)
    return sign + digits + std::string(static_cast<size_t>(exponent + 1 - num_digits), '0') + ".0";
  const auto point = static_cast<size_t>(exponent) + 1;
  return sign + digits.substr(0, point) + "." + digits.substr(point);
}

void append_str(TextBuilder& out, const Value& value) {
  if (value.is(Kind::kText))
    out += value.view();
  else if (!value.is(Kind::kUndefined) && !value.is(Kind::kMissing))
    append_repr(out, value);
}

void append_repr(TextBuilder& out, const Value& value) { Representation(out).write(value); }

std::string repr(Heap& heap, const Value& value) {
  TextBuilder out(heap);
  append_repr(out, value);
  return out.take();
}

Value to_soft_text(Heap& heap, const Value& value) {
  if (value.is(Kind::kText)) return value;
  TextBuilder out(heap);
  append_str(out, value);
  return out.finish();
}

Value to_text(Heap& heap, const Value& value) {
  return value.is(Kind::kText) && value.text().is_markup ? heap.text(value.view())
                                                         : to_soft_text(heap, value);
}

void append_escaped(TextBuilder& out, std::string_view text) {
  size_t plain = 0;  // where the stretch that needs no escape began
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view escaped = text[i] == '&'    ? "&amp;"
                                     : text[i] == '<'  ? "&lt;"
                                     : text[i] == '>'  ? "&gt;"
                                     : text[i] == '\'' ? "&#39;"
                                     : text[i] == '"'  ? "&#34;"
                                                       : "";
    if (escaped.empty()) continue;
    out += text.substr(plain, i - plain);
    out += escaped;
    plain = i + 1;
  }
  out += text.substr(plain);
}

Value escape(Heap& heap, const Value& value) {
  if (value.is(Kind::kText) && value.text().is_markup) return value;
  TextBuilder out(heap);
  append_escaped(out, to_text(heap, value).view());
  return heap.markup(out.take());
}

}  // namespace lockstep::serving::jinja
