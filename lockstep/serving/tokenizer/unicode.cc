#include "lockstep/serving/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

struct StandIn {
  char32_t first, last, instead;
};

constexpr StandIn kStandIns[] = {
#include "lockstep/serving/tokenizer/unicode_stand_ins.inc"
};

// One bit for each block of 256 characters that holds a newer one: nearly all text is told apart by this
// alone.
constexpr std::array<bool, 0x1100> make_blocks() {
  std::array<bool, 0x1100> blocks{};
  for (const StandIn& row : kStandIns)
    for (char32_t block = row.first >> 8; block <= row.last >> 8; ++block) blocks[block] = true;
  return blocks;
}
constexpr std::array<bool, 0x1100> kBlocks = make_blocks();

char32_t older(char32_t character) {
  if (!kBlocks[character >> 8]) return character;
  const auto* row = std::upper_bound(std::begin(kStandIns), std::end(kStandIns), character,
                                     [](char32_t value, const StandIn& r) { return value < r.first; });
  if (row == std::begin(kStandIns) || character > std::prev(row)->last) return character;
  return std::prev(row)->instead;
}

bool is_between(char32_t character, char32_t first, char32_t last) {
  return first <= character && character <= last;
}

// Symbols that are alphabetic all the same: the circled, squared and negative letters.
bool is_alphabetic_symbol(char32_t c) {
  return is_between(c, 0x24B6, 0x24E9) || is_between(c, 0x1F130, 0x1F149) ||
         is_between(c, 0x1F150, 0x1F169) || is_between(c, 0x1F170, 0x1F189);
}

}  // namespace

bool is_white_space(char32_t c) {
  return is_between(c, 0x09, 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         is_between(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t skip_white_space(std::string_view valid_text, size_t position) {
  while (position < valid_text.size()) {
    const CodePoint character = code_point_at(valid_text, position);
    if (!is_white_space(character.value)) break;
    position += static_cast<size_t>(character.num_bytes);
  }
  return position;
}

size_t skip_white_space_back(std::string_view valid_text, size_t position) {
  while (position > 0) {
    const size_t before = boundary_at_or_before(valid_text, position - 1);
    if (!is_white_space(code_point_at(valid_text, before).value)) break;
    position = before;
  }
  return position;
}

bool is_word_character(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(older(character)))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return character == 0x200C || character == 0x200D || is_alphabetic_symbol(character);
  }
}

std::string_view with_stand_ins(std::string_view valid_text, std::string& storage) {
  size_t copied = 0;  // bytes of the text that storage already holds; 0 while nothing was replaced
  for (size_t i = 0; i < valid_text.size();) {
    if (static_cast<unsigned char>(valid_text[i]) < 0x80) {
      ++i;
      continue;
    }
    const CodePoint character = code_point_at(valid_text, i);
    const char32_t instead = older(character.value);
    const size_t next = i + static_cast<size_t>(character.num_bytes);
    if (instead != character.value) {
      if (copied == 0) storage.clear();
      storage.append(valid_text.substr(copied, i - copied));
      append_code_point(instead, storage);
      copied = next;
    }
    i = next;
  }
  if (copied == 0) return valid_text;
  storage.append(valid_text.substr(copied));
  return storage;
}

}  // namespace lockstep::serving::tokenizing
