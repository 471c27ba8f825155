#pragma once
// Text that remembers which output tokens it came from, so that a token's log probability can be delivered
// with the characters that it became, however long they were held back. Knows nothing of markers, stop
// strings or JSON.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::serving {

class TracedText {
 public:
  static constexpr int kNoToken = -1;

  TracedText() = default;
  // Text of one token; a token whose bytes are no whole character yet has an empty text and still counts.
  explicit TracedText(std::string text, int token_idx = kNoToken);

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  bool holds_nothing() const { return text_.empty() && starts_.empty(); }

  void append(TracedText other);

  // Removes and returns the first `num_bytes`. A token goes with its first byte, one without bytes with what
  // follows it.
  TracedText take(size_t num_bytes);
  TracedText take_all();

  // Throws the first `num_bytes` away with the tokens that lie wholly in them.
  void drop(size_t num_bytes);

  // Where tokens begin in this text, in order; offsets never fall.
  struct Start {
    size_t offset;
    int token_idx;
    bool operator==(const Start&) const = default;
  };
  const std::vector<Start>& starts() const { return starts_; }

 private:
  std::string text_;
  std::vector<Start> starts_;
};

// The number of bytes of line feeds (and carriage returns) at either end.
size_t leading_newlines(std::string_view text);
size_t trailing_newlines(std::string_view text);

// The length of the longest proper prefix of `pattern` that `text` ends with.
size_t partial_match_at_end(std::string_view text, std::string_view pattern);

}  // namespace lockstep::serving
