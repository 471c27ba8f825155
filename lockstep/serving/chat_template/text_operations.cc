#include "lockstep/serving/chat_template/text_operations.h"

#include <algorithm>

#include "lockstep/serving/chat_template/text_search.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::string insert_between_chars(Heap& heap, std::string_view text, std::string_view part,
                                 Integer max_count) {
  TextBuilder out(heap);
  size_t offset = 0;
  for (Integer done = 0; max_count < 0 || done < max_count; ++done) {
    out += part;
    if (offset == text.size()) return out.take();
    const size_t start = offset;
    next_char(text, offset);
    out += text.substr(start, offset - start);
  }
  out += text.substr(offset);
  return out.take();
}

bool is_done(size_t num_parts, Integer max_splits) {
  return max_splits >= 0 && static_cast<Integer>(num_parts) >= max_splits;
}

std::vector<std::string_view> split_at_spaces(std::string_view text, Integer max_splits) {
  std::vector<std::string_view> parts;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (is_done(parts.size(), max_splits)) {
      parts.push_back(strip_right(text));
      break;
    }
    size_t end = 0;
    for (size_t behind = 0; end < text.size() && !is_space(next_char(text, behind));) end = behind;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split_at_spaces_from_right(std::string_view text, Integer max_splits) {
  std::vector<std::string_view> parts;
  for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
    if (is_done(parts.size(), max_splits)) {
      parts.push_back(strip_left(text));
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      const size_t before = previous_offset(text, start);
      size_t offset = before;
      if (is_space(next_char(text, offset))) break;
      start = before;
    }
    parts.push_back(text.substr(start));
    text = text.substr(0, start);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       Integer max_splits) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  while (!is_done(parts.size(), max_splits)) {
    const size_t found = find_text(text, separator, start);
    if (found == kNowhere) break;
    parts.push_back(text.substr(start, found - start));
    start = found + separator.size();
  }
  parts.push_back(text.substr(start));
  return parts;
}

// Searched in the reversed text, so that hostile texts stay linear.
std::vector<std::string_view> split_at_from_right(std::string_view text, std::string_view separator,
                                                  Integer max_splits) {
  const std::string backwards(text.rbegin(), text.rend());
  const std::string wanted(separator.rbegin(), separator.rend());
  std::vector<std::string_view> parts;
  size_t start = 0;  // in the reversed text
  while (!is_done(parts.size(), max_splits)) {
    const size_t found = find_text(backwards, wanted, start);
    if (found == kNowhere) break;
    parts.push_back(text.substr(text.size() - found, found - start));
    start = found + separator.size();
  }
  parts.push_back(text.substr(0, text.size() - start));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

std::string_view strip(Heap& heap, std::string_view text, std::optional<std::string_view> chars, Side side) {
  heap.work(text.size());
  if (!chars) {
    if (side != Side::kRight) text = strip_left(text);
    return side != Side::kLeft ? strip_right(text) : text;
  }
  heap.work(text.size() * 3 + chars->size() * 8);
  std::u32string set = to_chars(*chars);
  std::sort(set.begin(), set.end());
  const auto is_stripped = [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); };
  size_t start = 0;
  while (side != Side::kRight && start < text.size()) {
    size_t behind = start;
    if (!is_stripped(next_char(text, behind))) break;
    start = behind;
  }
  text.remove_prefix(start);
  while (side != Side::kLeft && !text.empty()) {
    const size_t before = previous_offset(text, text.size());
    size_t offset = before;
    if (!is_stripped(next_char(text, offset))) break;
    text = text.substr(0, before);
  }
  return text;
}

std::string replace(Heap& heap, std::string_view text, std::string_view old_part, std::string_view new_part,
                    Integer max_count) {
  heap.work(text.size());
  if (old_part.empty()) return insert_between_chars(heap, text, new_part, max_count);
  TextBuilder out(heap);
  size_t start = 0;
  for (Integer done = 0; max_count < 0 || done < max_count; ++done) {
    const size_t found = find_text(text, old_part, start);
    if (found == kNowhere) break;
    out += text.substr(start, found - start);
    out += new_part;
    start = found + old_part.size();
  }
  out += text.substr(start);
  return out.take();
}

std::vector<std::string_view> split(Heap& heap, std::string_view text,
                                    std::optional<std::string_view> separator, Integer max_splits,
                                    Side from) {
  heap.work(text.size() * 8);
  heap.require_room(Integer{text.size()}, 1);
  if (!separator)
    return from == Side::kRight ? split_at_spaces_from_right(text, max_splits)
                                : split_at_spaces(text, max_splits);
  if (separator->empty()) heap.fail("empty separator");
  return from == Side::kRight ? split_at_from_right(text, *separator, max_splits)
                              : split_at(text, *separator, max_splits);
}

std::vector<std::string_view> split_lines(Heap& heap, std::string_view text, LineEnds ends) {
  heap.work(text.size() * 8);
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t end = offset;
    const char32_t c = next_char(text, offset);
    if (!is_line_end(c)) continue;
    if (c == U'\r' && offset < text.size() && text[offset] == '\n') ++offset;
    lines.push_back(text.substr(start, (ends == LineEnds::kKeep ? offset : end) - start));
    start = offset;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string justify(Heap& heap, std::string_view text, Integer width, std::string_view fill, Side text_side) {
  const Integer padding = std::max(width - static_cast<Integer>(count_chars(text)), Integer{0});
  // Python centres an odd rest to the left for odd widths and to the right for even ones.
  const Integer before = text_side == Side::kLeft    ? 0
                         : text_side == Side::kRight ? padding
                                                     : padding / 2 + (padding & width & 1);
  TextBuilder out(heap);
  out.repeat(fill, before);
  out += text;
  out.repeat(fill, padding - before);
  return out.take();
}

std::string reverse(Heap& heap, std::string_view text) {
  heap.work(text.size());
  std::string out;
  out.reserve(text.size());
  for (size_t end = text.size(); end > 0;) {
    const size_t start = previous_offset(text, end);
    out += text.substr(start, end - start);
    end = start;
  }
  return out;
}

}  // namespace lockstep::serving::jinja
