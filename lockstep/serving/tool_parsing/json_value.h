#pragma once
// Finds where one JSON value ends, over any number of pieces of text. Does not check that it is JSON. Private
// to tool_parsing.
#include <cstddef>
#include <string_view>

namespace lockstep::serving::tool_parsing {

class ValueEnd {
 public:
  // The number of bytes of `piece` that belong to the value.
  size_t advance(std::string_view piece) {
    size_t at = 0;
    while (at < piece.size() && !done_) done_ = step(piece[at]) == Next::kTaken ? (++at, closed_) : true;
    return at;
  }
  bool done() const { return done_; }

 private:
  enum class Next : unsigned char { kTaken, kNotOurs };
  Next step(char c) {
    if (in_string_) {
      const bool ends = c == '"' && !escaped_;
      escaped_ = c == '\\' && !escaped_;
      if (ends) in_string_ = false, closed_ = depth_ == 0;
      return Next::kTaken;
    }
    if (depth_ == 0 && bare_ && std::string_view(",]} \t\r\n").find(c) != std::string_view::npos)
      return Next::kNotOurs;
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      closed_ = --depth_ <= 0;
    } else if (depth_ == 0) {
      bare_ = true;  // a number, true, false, null
    }
    return Next::kTaken;
  }
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, bare_ = false, closed_ = false, done_ = false;
};

}  // namespace lockstep::serving::tool_parsing
