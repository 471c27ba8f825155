#pragma once
// The alphabet in which byte-level vocabularies are written: each of the 256 bytes is one printable
// character. Bytes that are printable in Latin-1 stand for themselves; the other 68 are written U+0100,
// U+0101, ... in their order ("Ġ" is a space).
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::serving::tokenizing {

// Appends how `bytes` is written in a vocabulary.
void spell(std::string_view bytes, std::string& out);

// The bytes behind a vocabulary entry; nothing when a character is not of the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view valid_text);

}  // namespace lockstep::serving::tokenizing
