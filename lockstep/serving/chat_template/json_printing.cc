// tojson: Python's json.dumps(), which differs from a JSON library's output in separators, floats and
// indentation.
#include <algorithm>
#include <cmath>

#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

constexpr size_t kFlushQuotedBytes = 4096;

void append_unicode_escape(std::string& out, char32_t c) {
  if (c < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    return;
  }
  const auto above = static_cast<uint32_t>(c) - 0x10000;
  out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
}

std::string_view short_escape(char32_t c) {
  switch (c) {
    case U'"':
      return "\\\"";
    case U'\\':
      return "\\\\";
    case U'\n':
      return "\\n";
    case U'\r':
      return "\\r";
    case U'\t':
      return "\\t";
    case U'\f':
      return "\\f";
    case U'\b':
      return "\\b";
    default:
      return "";
  }
}

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value) {
    heap().step();
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.to_bool() ? "true" : "false";
        break;
      case Kind::kInt:
        out_ += integer_text(value.to_integer());
        break;
      case Kind::kFloat:
        out_ += json_real(value.to_real());
        break;
      case Kind::kText:
        write_text(value.view());
        break;
      case Kind::kList:
      case Kind::kTuple:
        write_sequence(value.items());
        break;
      case Kind::kDict:
        write_dict(value.dict());
        break;
      default:
        heap().fail("Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  Heap& heap() { return out_.heap(); }

  static std::string json_real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }

  void write_text(std::string_view text) {
    std::string quoted = "\"";
    for (size_t offset = 0; offset < text.size();) {
      const char32_t c = next_char(text, offset);
      if (const std::string_view escaped = short_escape(c); !escaped.empty())
        quoted += escaped;
      else if (c < 0x20 || (c >= 0x7F && style_.ensure_ascii))
        append_unicode_escape(quoted, c);
      else
        append_char(quoted, c);
      if (quoted.size() >= kFlushQuotedBytes) {
        out_ += quoted;
        quoted.clear();
      }
    }
    quoted += '"';
    out_ += quoted;
  }

  void write_line_break() {
    if (!style_.indent) return;
    out_ += '\n';
    out_.repeat(*style_.indent, depth_);
  }

  void write_sequence(const Values& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      write_line_break();
      write(items[i]);
    }
    --depth_;
    write_line_break();
    out_ += ']';
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kText:
        return write_text(key.view());
      case Kind::kFloat:
        return write_text(json_real(key.to_real()));
      case Kind::kBool:
        return write_text(key.to_bool() ? "true" : "false");
      case Kind::kNone:
        return write_text("null");
      case Kind::kInt:
        return write_text(integer_text(key.to_integer()));
      default:
        heap().fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void write_dict(const Dict& dict) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const Dict::Entry* a, const Dict::Entry* b) {
        return is_less(heap(), a->first, b->first);
      });
    out_ += '{';
    ++depth_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      write_line_break();
      write_key(entries[i]->first);
      out_ += style_.key_separator;
      write(entries[i]->second);
    }
    --depth_;
    write_line_break();
    out_ += '}';
  }

  TextBuilder& out_;
  const JsonStyle& style_;
  int depth_ = 0;
};

}  // namespace

void append_json(TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(out, style).write(value);
}

}  // namespace lockstep::serving::jinja
