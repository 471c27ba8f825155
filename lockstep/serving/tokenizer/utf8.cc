#include "lockstep/serving/tokenizer/utf8.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::serving::tokenizing {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

unsigned byte_of(char c) { return static_cast<unsigned char>(c); }

// Bytes of the sequence that starts with `first`; 0 when none does.
int sequence_length(unsigned first) {
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// Whether `next` may stand behind `first`: this refuses overlong forms, surrogates and values above U+10FFFF.
bool may_be_second(unsigned first, unsigned next) {
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  return low <= next && next <= high;
}

bool is_continuation(unsigned byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

CodePoint code_point_at(std::string_view valid_text, size_t position) {
  const auto at = [&](size_t i) { return byte_of(valid_text[position + i]); };
  const unsigned first = at(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (at(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F), 4};
}

size_t boundary_at_or_before(std::string_view valid_text, size_t position) {
  if (position >= valid_text.size()) return valid_text.size();
  while (position > 0 && is_continuation(byte_of(valid_text[position]))) --position;
  return position;
}

size_t boundary_after(std::string_view valid_text, size_t position) {
  do ++position;
  while (position < valid_text.size() && is_continuation(byte_of(valid_text[position])));
  return position;
}

void append_code_point(char32_t value, std::string& out) {
  const auto push = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) return push(value);
  if (value < 0x800) {
    push(0xC0 | value >> 6);
  } else if (value < 0x10000) {
    push(0xE0 | value >> 12);
    push(0x80 | (value >> 6 & 0x3F));
  } else {
    push(0xF0 | value >> 18);
    push(0x80 | (value >> 12 & 0x3F));
    push(0x80 | (value >> 6 & 0x3F));
  }
  push(0x80 | (value & 0x3F));
}

bool is_valid_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const unsigned first = byte_of(bytes[i]);
    const auto length = static_cast<size_t>(sequence_length(first));
    if (length == 0 || length > bytes.size() - i) return false;
    if (length > 1 && !may_be_second(first, byte_of(bytes[i + 1]))) return false;
    for (size_t k = 2; k < length; ++k)
      if (!is_continuation(byte_of(bytes[i + k]))) return false;
    i += length;
  }
  return true;
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Repair repair;
  repair.append(bytes, out);
  repair.finish(out);
  return out;
}

void Utf8Repair::append(std::string_view bytes, std::string& out) {
  for (size_t i = 0; i < bytes.size();) {
    if (num_pending_ == 0) {
      const auto* end = std::find_if(bytes.begin() + static_cast<ptrdiff_t>(i), bytes.end(),
                                     [](char c) { return byte_of(c) >= 0x80; });
      const auto ascii = static_cast<size_t>(end - bytes.begin()) - i;
      out.append(bytes.substr(i, ascii));
      i += ascii;
      if (i == bytes.size()) return;
    }
    append_byte(bytes[i++], out);
  }
}

void Utf8Repair::append_byte(char byte, std::string& out) {
  if (num_pending_ > 0) {
    const unsigned first = byte_of(pending_[0]);
    const bool fits =
        num_pending_ == 1 ? may_be_second(first, byte_of(byte)) : is_continuation(byte_of(byte));
    if (fits) {
      pending_[num_pending_++] = byte;
      if (num_pending_ == sequence_length(first)) {
        out.append(pending_, static_cast<size_t>(num_pending_));
        num_pending_ = 0;
      }
      return;
    }
    finish(out);
  }
  const int length = sequence_length(byte_of(byte));
  if (length == 0) {
    out.append(kReplacement);
  } else if (length == 1) {
    out.push_back(byte);
  } else {
    pending_[num_pending_++] = byte;
  }
}

void Utf8Repair::finish(std::string& out) {
  if (num_pending_ > 0) out.append(kReplacement);
  num_pending_ = 0;
}

}  // namespace lockstep::serving::tokenizing
