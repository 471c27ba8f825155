#pragma once
// Finds added tokens in a text: at each place the longest that starts there, the leftmost first. A trie over
// bytes.
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/serving/tokenizer/vocabulary.h"

namespace lockstep::serving::tokenizing {

// A part of a text: an added token, or with id -1 text between.
struct TextSpan {
  int32_t id = -1;
  std::string_view text;
};

class AddedTokenFinder {
 public:
  // Of tokens that are searched for by the same text the first wins.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool finds_nothing() const { return tokens_.empty(); }

  // The text as spans, in order. White space that a token takes along lies in its span; a span of a token
  // that starts in space already taken overlaps the one before, as in the library that defines the format.
  std::vector<TextSpan> split(std::string_view valid_text) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> children;  // few
    int32_t token = -1;                                       // index into tokens_
  };
  struct Match {
    int32_t token = -1;
    size_t begin = 0;
    size_t end = 0;
  };
  void insert(std::string_view content, int32_t token);
  int32_t child(int32_t node, char byte) const;
  Match find(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  bool starts_token_[256] = {};
};

}  // namespace lockstep::serving::tokenizing
