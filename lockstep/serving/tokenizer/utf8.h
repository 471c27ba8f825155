#pragma once
// UTF-8 as the tokenizer needs it: walking valid text, and repairing bytes of unknown origin. Invalid bytes
// become U+FFFD, one for each longest piece that could have begun a character (the rule of the Unicode
// standard, section 3.9, and of WHATWG).
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::serving::tokenizing {

struct CodePoint {
  char32_t value = 0;
  int num_bytes = 0;
};

// The character that starts at `position`, which must be a boundary inside valid UTF-8.
CodePoint code_point_at(std::string_view valid_text, size_t position);

// The last boundary that is not after `position`; the text's end when `position` lies behind it.
size_t boundary_at_or_before(std::string_view valid_text, size_t position);

// The first boundary after `position`; one more than the text's size behind its end.
size_t boundary_after(std::string_view valid_text, size_t position);

void append_code_point(char32_t value, std::string& out);

bool is_valid_utf8(std::string_view bytes);

std::string repair_utf8(std::string_view bytes);

// The same repair for bytes that arrive in pieces: what is complete goes out at once, at most three bytes are
// kept.
class Utf8Repair {
 public:
  void append(std::string_view bytes, std::string& out);

  // No more bytes will come: a character that was begun can no longer be ended.
  void finish(std::string& out);

 private:
  void append_byte(char byte, std::string& out);

  char pending_[4] = {};
  int num_pending_ = 0;
};

}  // namespace lockstep::serving::tokenizing
