#pragma once
// Source text to tokens: tags, white-space control (-, +, trim_blocks, lstrip_blocks), raw blocks, comments,
// literals.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

enum class TokenKind : uint8_t {
  kData,  // text between tags
  kOutputBegin,
  kOutputEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,   // text is unescaped
  kInteger,  // integer
  kFloat,    // real
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text;
  Integer integer = 0;
  double real = 0;

  bool is_operator(std::string_view symbol) const { return kind == TokenKind::kOperator && text == symbol; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// Ends in a kEnd token. `source` is valid UTF-8. Throws Failure.
std::vector<Token> tokenize(std::string_view source);

// The token as an error message shows it.
std::string describe(const Token& token);

}  // namespace lockstep::serving::jinja
