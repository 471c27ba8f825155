#pragma once
// Cuts the stream of output tokens into text and control markers (think tags, tool-call tags). What the
// markers mean is not known here: reasoning/ and tool_parsing/ decide that.
//
// A marker that is one token of the tokenizer is matched by its id and nothing else: a model that spells it
// out in ordinary characters has written text. A marker that the tokenizer does not hold is matched in the
// text, whose end is held back while it may be the marker's beginning.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/serving/reply/traced_text.h"

namespace lockstep::serving {

enum class MarkerKind : unsigned char {
  kText,  // no marker
  kThinkBegin,
  kThinkEnd,
  kCallsBegin,
  kCallsEnd,
  kCallBegin,
  kCallEnd,
  kCallSeparator,
  kMessageBegin,  // of messages in channels: before a header, ...
  kChannel,       // ... before the channel's name in it, ...
  kMessageText,   // ... before the message's text, ...
  kMessageEnd,    // ... and behind it
  kFrame,         // means nothing of its own
};

struct Marker {
  MarkerKind kind = MarkerKind::kText;
  std::string text;
  std::optional<int32_t> token_id;  // none: the tokenizer does not hold it as one token
};

struct Lexeme {
  MarkerKind kind = MarkerKind::kText;
  TracedText text;  // what stands in the output, should the marker mean nothing where it stands
};

class MarkerScanner {
 public:
  explicit MarkerScanner(std::vector<Marker> markers);

  // True when the token is a marker of its own. Its text is then not to be decoded together with its
  // neighbours'.
  bool is_marker_token(int32_t token_id) const { return find(token_id) != nullptr; }

  // `text`: what decoding the token added to the output; for a special token, nothing.
  std::vector<Lexeme> push(int32_t token_id, TracedText text);
  std::vector<Lexeme> finish();

 private:
  const Marker* find(int32_t token_id) const;
  void scan_text(std::vector<Lexeme>& out);
  size_t held_bytes() const;

  std::vector<Marker> by_id_, by_text_;
  TracedText held_;
};

}  // namespace lockstep::serving
