// The methods of Python's str.
#include <algorithm>
#include <array>
#include <optional>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/formatting.h"
#include "lockstep/serving/chat_template/methods.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/text_operations.h"
#include "lockstep/serving/chat_template/text_search.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

void require_none(Heap& heap, std::string_view name, const CallArguments& arguments) {
  Signature(heap, name, arguments, {});
}

template <std::string (*kMap)(std::string_view)>
Value mapped_method(Heap& heap, const Value& self, const CallArguments& arguments) {
  require_none(heap, "str method", arguments);
  if (!self.text().is_ascii()) heap.require_room(Integer{self.view().size()}, 8);
  heap.work(self.view().size() * (self.text().is_ascii() ? 1 : 8));
  return heap.text_like(self, kMap(self.view()));
}

template <bool (*kHolds)(char32_t)>
Value all_chars(Heap& heap, const Value& self, const CallArguments& arguments) {
  require_none(heap, "str method", arguments);
  heap.work(self.view().size() * 8);
  const std::string_view text = self.view();
  for (size_t offset = 0; offset < text.size();)
    if (!kHolds(next_char(text, offset))) return Value::boolean(false);
  return Value::boolean(!text.empty());
}

bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_numeric(c) || is_digit(c); }

Value is_ascii_text(Heap& heap, const Value& self, const CallArguments& arguments) {
  require_none(heap, "isascii", arguments);
  return Value::boolean(self.text().is_ascii());
}

Value is_printable_text(Heap& heap, const Value& self, const CallArguments& arguments) {
  if (!self.view().empty()) return all_chars<is_printable>(heap, self, arguments);
  require_none(heap, "isprintable", arguments);
  return Value::boolean(true);
}

// Whether there are cased characters and all of them are of one case.
template <bool (*kWanted)(char32_t), bool (*kOther)(char32_t)>
Value is_of_case(Heap& heap, const Value& self, const CallArguments& arguments) {
  require_none(heap, "str method", arguments);
  heap.work(self.view().size() * 8);
  bool any = false;
  for (size_t offset = 0; offset < self.view().size();) {
    const char32_t c = next_char(self.view(), offset);
    if (kOther(c) || is_title(c)) return Value::boolean(false);
    any = any || kWanted(c);
  }
  return Value::boolean(any);
}

Value is_title_text(Heap& heap, const Value& self, const CallArguments& arguments) {
  require_none(heap, "istitle", arguments);
  heap.work(self.view().size() * 8);
  bool any = false, inside_word = false;
  for (size_t offset = 0; offset < self.view().size();) {
    const char32_t c = next_char(self.view(), offset);
    const bool starts = is_upper(c) || is_title(c);
    if (starts ? inside_word : is_lower(c) && !inside_word) return Value::boolean(false);
    inside_word = starts || is_lower(c);
    any = any || inside_word;
  }
  return Value::boolean(any);
}

std::optional<std::string_view> optional_text(const Signature& signature, size_t idx) {
  if (!signature.has(idx) || signature.value(idx).is(Kind::kNone)) return std::nullopt;
  return signature.text(idx);
}

template <Side kSide>
Value strip_method(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "strip", arguments, {""});
  return heap.text_like(self, std::string(strip(heap, self.view(), optional_text(signature, 0), kSide)));
}

Value list_of(Heap& heap, const Value& self, const std::vector<std::string_view>& parts) {
  heap.require_room(Integer{parts.size()}, sizeof(Value));
  Values items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    heap.step();
    items.push_back(heap.text_like(self, std::string(part)));
  }
  return heap.list(std::move(items));
}

template <Side kFrom>
Value split_method(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "split", arguments, {"sep", "maxsplit"});
  return list_of(heap, self,
                 split(heap, self.view(), optional_text(signature, 0), signature.integer_or(1, -1), kFrom));
}

Value splitlines(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "splitlines", arguments, {"keepends"});
  const LineEnds ends = signature.flag(0) ? LineEnds::kKeep : LineEnds::kDrop;
  return list_of(heap, self, split_lines(heap, self.view(), ends));
}

template <Side kFrom>
Value partition(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "partition", arguments, {""}, 1);
  const std::string_view text = self.view();
  const std::string_view separator = signature.text(0);
  if (separator.empty()) heap.fail("empty separator");
  heap.work(text.size());
  const size_t found = kFrom == Side::kLeft ? find_text(text, separator) : find_last_text(text, separator);
  const auto piece = [&](std::string_view part) { return heap.text_like(self, std::string(part)); };
  if (found == std::string_view::npos)
    return kFrom == Side::kLeft ? heap.tuple({self, piece(""), piece("")})
                                : heap.tuple({piece(""), piece(""), self});
  return heap.tuple(
      {piece(text.substr(0, found)), piece(separator), piece(text.substr(found + separator.size()))});
}

Value replace_method(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "replace", arguments, {"", "", ""}, 2);
  std::string_view new_part = signature.text(1);
  Value escaped;  // a markup text escapes what is put into it
  if (self.text().is_markup) {
    escaped = escape(heap, signature.value(1));
    new_part = escaped.view();
  }
  return heap.text_like(self,
                        replace(heap, self.view(), signature.text(0), new_part, signature.integer_or(2, -1)));
}

Value join_method(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "join", arguments, {""}, 1);
  const SharedValues items = iterate(heap, signature.value(0));
  TextBuilder out(heap);
  for (size_t i = 0; i < items.size(); ++i) {
    const Value& item = items[i];
    heap.step();
    if (i > 0) out += self.view();
    if (self.text().is_markup) {
      out += escape(heap, item).view();
      continue;
    }
    if (!item.is(Kind::kText))
      heap.fail("sequence item {}: expected str instance, {} found", i, type_name(item));
    out += item.view();
  }
  return heap.text_like(self, out.take());
}

// The part of a text between two optional character positions.
struct Region {
  std::string_view text;
  Integer first_char = 0;
  bool is_outside = false;  // it begins behind the end
};

Region region_of(Heap& heap, const Value& self, const Signature& signature, size_t start_idx) {
  const Text& text = self.text();
  const auto size = static_cast<Integer>(text.num_chars);
  const auto bound = [&](size_t idx, Integer fallback) {
    if (!signature.has(idx) || signature.value(idx).is(Kind::kNone)) return fallback;
    const Integer value = signature.integer(idx);
    return value < 0 ? std::max(value < -size ? Integer{0} : value + size, Integer{0}) : value;
  };
  heap.work(text.bytes.size() * 2);
  const Integer start = bound(start_idx, 0);
  const Integer stop = std::min(bound(start_idx + 1, size), size);
  if (start > stop) return {{}, start, true};
  const auto offset = [&](Integer char_idx) {
    return text.is_ascii() ? static_cast<size_t>(char_idx)
                           : byte_offset(text.bytes, static_cast<size_t>(char_idx));
  };
  const size_t begin = offset(start);
  return {std::string_view(text.bytes).substr(begin, offset(stop) - begin), start, false};
}

enum class Absent : uint8_t { kMinusOne, kError };

template <Side kFrom, Absent kAbsent>
Value find(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "find", arguments, {"", "", ""}, 1);
  const std::string_view needle = signature.text(0);
  const Region region = region_of(heap, self, signature, 1);
  size_t found = std::string_view::npos;
  if (!region.is_outside)
    found = kFrom == Side::kLeft ? find_text(region.text, needle) : find_last_text(region.text, needle);
  if (found != std::string_view::npos)
    return Value::integer(region.first_char +
                          static_cast<Integer>(count_chars(region.text.substr(0, found))));
  if (kAbsent == Absent::kError) heap.fail("substring not found");
  return Value::integer(-1);
}

Value count_in_text(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "count", arguments, {"", "", ""}, 1);
  const std::string_view needle = signature.text(0);
  const Region region = region_of(heap, self, signature, 1);
  if (region.is_outside) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<Integer>(count_chars(region.text)) + 1);
  return Value::integer(count_text(region.text, needle));
}

template <Side kWhere>
Value has_affix(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "startswith or endswith", arguments, {"", "", ""}, 1);
  const Region region = region_of(heap, self, signature, 1);
  const auto matches = [&](const Value& affix) {
    heap.step();
    if (!affix.is(Kind::kText))
      heap.fail("startswith or endswith needs a str or a tuple of str, not {}", type_name(affix));
    if (region.is_outside) return false;
    return kWhere == Side::kLeft ? region.text.starts_with(affix.view())
                                 : region.text.ends_with(affix.view());
  };
  const Value& wanted = signature.value(0);
  if (wanted.is(Kind::kUndefined)) heap.fail_undefined(wanted);
  if (!wanted.is(Kind::kTuple)) return Value::boolean(matches(wanted));
  return Value::boolean(std::any_of(wanted.items().begin(), wanted.items().end(), matches));
}

Value removeprefix(Heap& heap, const Value& self, const CallArguments& arguments) {
  const std::string_view prefix = Signature(heap, "removeprefix", arguments, {""}, 1).text(0);
  const std::string_view text = self.view();
  heap.work(prefix.size());
  return heap.text_like(self, std::string(text.starts_with(prefix) ? text.substr(prefix.size()) : text));
}

Value removesuffix(Heap& heap, const Value& self, const CallArguments& arguments) {
  const std::string_view suffix = Signature(heap, "removesuffix", arguments, {""}, 1).text(0);
  const std::string_view text = self.view();
  heap.work(suffix.size());
  return heap.text_like(
      self, std::string(text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text));
}

template <Side kTextSide>
Value justify_method(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "ljust, rjust or center", arguments, {"", ""}, 1);
  const std::string_view fill = signature.has(1) ? signature.text(1) : " ";
  if (count_chars(fill) != 1) heap.fail("The fill character must be exactly one character long");
  return heap.text_like(self, justify(heap, self.view(), signature.integer(0), fill, kTextSide));
}

Value zfill(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "zfill", arguments, {""}, 1);
  std::string_view text = self.view();
  Integer width = signature.integer(0);
  TextBuilder out(heap);
  if (text.starts_with('+') || text.starts_with('-')) {
    out += text.front();
    text.remove_prefix(1);
    --width;
  }
  out += justify(heap, text, width, "0", Side::kRight);
  return heap.text_like(self, out.take());
}

Value expandtabs(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "expandtabs", arguments, {"tabsize"});
  const Integer tab = signature.integer_or(0, 8);
  TextBuilder out(heap);
  Integer column = 0;
  const std::string_view text = self.view();
  for (size_t offset = 0; offset < text.size();) {
    const size_t start = offset;
    const char32_t c = next_char(text, offset);
    if (c == U'\t') {
      const Integer width = tab > 0 ? tab - column % tab : 0;
      out.repeat(" ", width);
      column += width;
      continue;
    }
    out += text.substr(start, offset - start);
    column = c == U'\n' || c == U'\r' ? 0 : column + 1;
  }
  return heap.text_like(self, out.take());
}

Value format(Heap& heap, const Value& self, const CallArguments& arguments) {
  return format_braces(heap, self, arguments);
}

Value unsupported(Heap& heap, const Value&, const CallArguments&) {
  heap.fail("this str method (encode, format_map, isidentifier, maketrans or translate) is not supported");
}

constexpr std::array kMethods = {
    MethodEntry{"capitalize", mapped_method<capitalize>},
    MethodEntry{"casefold", mapped_method<fold_case>},
    MethodEntry{"center", justify_method<Side::kBoth>},
    MethodEntry{"count", count_in_text},
    MethodEntry{"encode", unsupported},
    MethodEntry{"endswith", has_affix<Side::kRight>},
    MethodEntry{"expandtabs", expandtabs},
    MethodEntry{"find", find<Side::kLeft, Absent::kMinusOne>},
    MethodEntry{"format", format},
    MethodEntry{"format_map", unsupported},
    MethodEntry{"index", find<Side::kLeft, Absent::kError>},
    MethodEntry{"isalnum", all_chars<is_alphanumeric>},
    MethodEntry{"isalpha", all_chars<is_alpha>},
    MethodEntry{"isascii", is_ascii_text},
    MethodEntry{"isdecimal", all_chars<is_decimal>},
    MethodEntry{"isdigit", all_chars<is_digit>},
    MethodEntry{"isidentifier", unsupported},
    MethodEntry{"islower", is_of_case<is_lower, is_upper>},
    MethodEntry{"isnumeric", all_chars<is_numeric>},
    MethodEntry{"isprintable", is_printable_text},
    MethodEntry{"isspace", all_chars<is_space>},
    MethodEntry{"istitle", is_title_text},
    MethodEntry{"isupper", is_of_case<is_upper, is_lower>},
    MethodEntry{"join", join_method},
    MethodEntry{"ljust", justify_method<Side::kLeft>},
    MethodEntry{"lower", mapped_method<to_lower>},
    MethodEntry{"lstrip", strip_method<Side::kLeft>},
    MethodEntry{"maketrans", unsupported},
    MethodEntry{"partition", partition<Side::kLeft>},
    MethodEntry{"removeprefix", removeprefix},
    MethodEntry{"removesuffix", removesuffix},
    MethodEntry{"replace", replace_method},
    MethodEntry{"rfind", find<Side::kRight, Absent::kMinusOne>},
    MethodEntry{"rindex", find<Side::kRight, Absent::kError>},
    MethodEntry{"rjust", justify_method<Side::kRight>},
    MethodEntry{"rpartition", partition<Side::kRight>},
    MethodEntry{"rsplit", split_method<Side::kRight>},
    MethodEntry{"rstrip", strip_method<Side::kRight>},
    MethodEntry{"split", split_method<Side::kLeft>},
    MethodEntry{"splitlines", splitlines},
    MethodEntry{"startswith", has_affix<Side::kLeft>},
    MethodEntry{"strip", strip_method<Side::kBoth>},
    MethodEntry{"swapcase", mapped_method<swap_case>},
    MethodEntry{"title", mapped_method<to_title>},
    MethodEntry{"translate", unsupported},
    MethodEntry{"upper", mapped_method<to_upper>},
    MethodEntry{"zfill", zfill},
};

}  // namespace

const MethodEntry* find_text_method(std::string_view name) {
  const auto found =
      std::lower_bound(kMethods.begin(), kMethods.end(), name,
                       [](const MethodEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != kMethods.end() && found->name == name ? &*found : nullptr;
}

}  // namespace lockstep::serving::jinja
