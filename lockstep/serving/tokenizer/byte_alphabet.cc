#include "lockstep/serving/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

constexpr int kNumWritten = 0x100 + 68;  // characters U+0000 up to the last stand-in, U+0143

struct ByteSpelling {
  std::array<char16_t, 256> character_of{};
  std::array<int16_t, kNumWritten> byte_of{};  // -1: not of the alphabet
};

constexpr ByteSpelling make_alphabet() {
  ByteSpelling alphabet;
  alphabet.byte_of.fill(-1);
  char16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
    const char16_t character = printable ? static_cast<char16_t>(byte) : next++;
    alphabet.character_of[static_cast<size_t>(byte)] = character;
    alphabet.byte_of[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr ByteSpelling kAlphabet = make_alphabet();

}  // namespace

void spell(std::string_view bytes, std::string& out) {
  for (const char c : bytes) append_code_point(kAlphabet.character_of[static_cast<unsigned char>(c)], out);
}

std::optional<std::string> bytes_of_spelling(std::string_view valid_text) {
  std::string bytes;
  for (size_t i = 0; i < valid_text.size();) {
    const CodePoint character = code_point_at(valid_text, i);
    if (character.value >= kNumWritten || kAlphabet.byte_of[character.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[character.value]));
    i += static_cast<size_t>(character.num_bytes);
  }
  return bytes;
}

}  // namespace lockstep::serving::tokenizing
