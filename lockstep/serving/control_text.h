#pragma once
// Keeps text that spells out control tokens from becoming them. Such spellings in strings of messages are
// replaced by stand-ins (a private-use character, a number that nobody can guess, the spelling's number)
// before a template renders them, and when the rendered text is encoded each stand-in becomes the ordinary
// tokens of its spelling. Private to chat.cc.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/tokenizer.h"

namespace lockstep::serving {

// The control tokens' texts, looked up at a place of a text in a time that does not grow with their number.
class ControlSpellings {
 public:
  explicit ControlSpellings(std::vector<std::string> spellings = {});

  struct Found {
    size_t place = std::string::npos;
    size_t which = 0;
  };
  // The leftmost spelling at or after `at`; of those that begin at the same place the longest.
  Found find(std::string_view text, size_t at) const;
  const std::string& spelling(size_t which) const { return sorted_[which]; }
  size_t size() const { return sorted_.size(); }

 private:
  std::optional<size_t> longest_at(std::string_view text) const;

  std::vector<std::string> sorted_;
  std::array<bool, 256> is_first_byte_{};
};

class ControlText {
 public:
  explicit ControlText(const ControlSpellings& spellings);

  // Replaces spellings in every string inside `value`.
  void hide(Json& value);

  // The ids of the rendered text; `rendered` gets the spellings back.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string& rendered) const;

 private:
  void hide_in(std::string& text);

  const ControlSpellings& spellings_;
  std::string open_;  // empty as long as nothing was hidden
};

}  // namespace lockstep::serving
