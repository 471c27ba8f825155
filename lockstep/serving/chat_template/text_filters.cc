// Filters that make text: case, stripping, replacing, indenting, escaping, tojson.
#include <array>
#include <optional>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/filters.h"
#include "lockstep/serving/chat_template/formatting.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/text_operations.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

template <std::string (*kMap)(std::string_view)>
Value mapped(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "the filter", arguments, {});
  const Value text = to_soft_text(heap, subject);
  if (!text.text().is_ascii()) heap.require_room(Integer{text.view().size()}, 8);
  heap.work(text.view().size() * (text.text().is_ascii() ? 1 : 8));
  return heap.text_like(text, kMap(text.view()));
}

bool starts_word(char32_t c) {
  return c == U'-' || is_space(c) || c == U'(' || c == U'{' || c == U'[' || c == U'<';
}

// Other than str.title(), Jinja's filter starts words only behind white space, hyphens and brackets.
std::string title_words(std::string_view text) {
  std::string out;
  size_t start = 0;
  while (start < text.size()) {
    size_t end = start;
    bool is_separator = false;
    for (size_t behind = start; end < text.size(); end = behind) {
      const bool separates = starts_word(next_char(text, behind));
      if (end == start) is_separator = separates;
      if (separates != is_separator) break;
    }
    size_t first_end = start;
    next_char(text, first_end);
    out += to_upper(text.substr(start, first_end - start));
    out += to_lower(text.substr(first_end, end - first_end));
    start = end;
  }
  return out;
}

Value trim(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "trim", arguments, {"chars"});
  const Value text = to_soft_text(heap, subject);
  std::optional<std::string_view> chars;
  if (signature.has(0) && !signature.value(0).is(Kind::kNone)) chars = signature.text(0);
  return heap.text_like(text, std::string(strip(heap, text.view(), chars, Side::kBoth)));
}

Value replace_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "replace", arguments, {"old", "new", "count"}, 2);
  const Value old_part = to_text(heap, signature.value(0));
  const Value new_part = to_text(heap, signature.value(1));
  const bool has_count = signature.has(2) && !signature.value(2).is(Kind::kNone);
  const Integer count = has_count ? signature.integer(2) : -1;
  return heap.text(replace(heap, to_text(heap, subject).view(), old_part.view(), new_part.view(), count));
}

Value string(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "string", arguments, {});
  return to_soft_text(heap, subject);
}

Value safe(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "safe", arguments, {});
  return heap.markup(std::string(to_text(heap, subject).view()));
}

Value escape_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "escape", arguments, {});
  return escape(heap, subject);
}

Value forceescape(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "forceescape", arguments, {});
  return escape(heap, to_text(heap, subject));
}

// A subject that must be a text already.
const Text& require_text(Heap& heap, std::string_view filter, const Value& subject) {
  if (subject.is(Kind::kUndefined)) heap.fail_undefined(subject);
  if (!subject.is(Kind::kText))
    heap.fail("the filter '{}' needs a string, not '{}'", filter, type_name(subject));
  return subject.text();
}

Value indent(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "indent", arguments, {"width", "first", "blank"});
  std::string text = require_text(heap, "indent", subject).bytes;
  text += '\n';
  TextBuilder indentation(heap);
  if (signature.has(0) && signature.value(0).is(Kind::kText))
    indentation += signature.text(0);
  else
    indentation.repeat(" ", signature.integer_or(0, 4));
  const bool indents_blank = signature.flag(2);
  TextBuilder out(heap);
  if (signature.flag(1)) out += indentation.bytes();
  bool is_first = true;
  for (const std::string_view line : split_lines(heap, text, LineEnds::kDrop)) {
    if (!is_first) {
      out += '\n';
      if (indents_blank || !line.empty()) out += indentation.bytes();
    }
    is_first = false;
    out += line;
  }
  return heap.text_like(subject, out.take());
}

Value center(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "center", arguments, {"width"});
  const Value text = to_soft_text(heap, subject);
  return heap.text_like(text, justify(heap, text.view(), signature.integer_or(0, 80), " ", Side::kBoth));
}

Value truncate_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Integer length = signature.integer_or(0, 255);
  const std::string_view end = signature.has(2) ? signature.text(2) : "...";
  const bool has_leeway = signature.has(3) && !signature.value(3).is(Kind::kNone);
  const Integer leeway = has_leeway ? signature.integer(3) : 5;
  const auto end_size = static_cast<Integer>(count_chars(end));
  if (length < end_size)
    heap.fail("truncate needs a length of at least {}, the size of its end", integer_text(end_size));
  if (leeway < 0) heap.fail("truncate needs a leeway of at least 0, not {}", integer_text(leeway));
  if (jinja::length(heap, subject) <= length + leeway) return subject;
  const Text& text = require_text(heap, "truncate", subject);
  heap.work(text.bytes.size());
  std::string_view kept =
      std::string_view(text.bytes).substr(0, byte_offset(text.bytes, static_cast<size_t>(length - end_size)));
  if (!signature.flag(1)) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  return heap.text_like(subject, fmt::format("{}{}", kept, end));
}

Value wordcount(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "wordcount", arguments, {});
  const Value text = to_soft_text(heap, subject);
  heap.work(text.view().size() * 8);
  Integer count = 0;
  bool inside = false;
  for (size_t offset = 0; offset < text.view().size();) {
    const bool is_inside = is_word(next_char(text.view(), offset));
    if (is_inside && !inside) ++count;
    inside = is_inside;
  }
  return Value::integer(count);
}

Value format_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty())
    heap.fail("format takes positional or keyword arguments, not both");
  const Value text = to_soft_text(heap, subject);
  if (arguments.keywords.empty()) return format_printf(heap, text, heap.tuple(arguments.positional));
  std::vector<Dict::Entry> entries;
  for (const auto& [name, value] : arguments.keywords) entries.emplace_back(heap.text(name), value);
  return format_printf(heap, text, heap.dict(std::move(entries)));
}

Value tojson(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = signature.flag(0);
  style.sort_keys = signature.flag(3);
  if (signature.has(1) && !signature.value(1).is(Kind::kNone)) {
    TextBuilder indentation(heap);
    if (signature.value(1).is(Kind::kText))
      indentation += signature.text(1);
    else
      indentation.repeat(" ", signature.integer(1));
    style.indent = indentation.take();
    style.item_separator = ",";
  }
  if (signature.has(2) && !signature.value(2).is(Kind::kNone)) {
    const SharedValues separators = iterate(heap, signature.value(2));
    if (separators.size() != 2 || !separators[0].is(Kind::kText) || !separators[1].is(Kind::kText))
      heap.fail("separators of tojson must be two strings, between items and behind keys");
    style.item_separator = separators[0].view();
    style.key_separator = separators[1].view();
  }
  TextBuilder out(heap);
  append_json(out, subject, style);
  return out.finish();
}

bool stays_in_url(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '~';
}

enum class UrlPart : uint8_t { kPath, kQuery };

void append_quoted_url(TextBuilder& out, std::string_view text, UrlPart part) {
  for (const char c : text) {
    if (stays_in_url(c) || (c == '/' && part == UrlPart::kPath))
      out += c;
    else if (c == ' ' && part == UrlPart::kQuery)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
}

Value urlencode(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "urlencode", arguments, {});
  TextBuilder out(heap);
  if (subject.is(Kind::kText) || !is_iterable(subject)) {
    append_quoted_url(out, to_text(heap, subject).view(), UrlPart::kPath);
    return out.finish();
  }
  const Value pairs = subject.is(Kind::kDict) ? heap.view(subject, ViewOf::kItems) : subject;
  bool is_first = true;
  for (const Value& pair : iterate(heap, pairs)) {
    const SharedValues parts = iterate(heap, pair);
    if (parts.size() != 2) heap.fail("urlencode needs pairs, but an item has {} parts", parts.size());
    if (!is_first) out += '&';
    is_first = false;
    append_quoted_url(out, to_text(heap, parts[0]).view(), UrlPart::kQuery);
    out += '=';
    append_quoted_url(out, to_text(heap, parts[1]).view(), UrlPart::kQuery);
  }
  return out.finish();
}

constexpr std::array kTextFilters = {
    FilterEntry{"capitalize", mapped<capitalize>},
    FilterEntry{"center", center},
    FilterEntry{"e", escape_filter},
    FilterEntry{"escape", escape_filter},
    FilterEntry{"forceescape", forceescape},
    FilterEntry{"format", format_filter},
    FilterEntry{"indent", indent},
    FilterEntry{"lower", mapped<to_lower>},
    FilterEntry{"replace", replace_filter},
    FilterEntry{"safe", safe},
    FilterEntry{"string", string},
    FilterEntry{"title", mapped<title_words>},
    FilterEntry{"tojson", tojson},
    FilterEntry{"trim", trim},
    FilterEntry{"truncate", truncate_filter},
    FilterEntry{"upper", mapped<to_upper>},
    FilterEntry{"urlencode", urlencode},
    FilterEntry{"wordcount", wordcount},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kTextFilters; }

}  // namespace lockstep::serving::jinja
