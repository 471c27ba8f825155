#pragma once
// What the tokenizer asks about single characters, by Unicode 16 whatever version the libraries know.
// Characters newer than their tables are replaced, for questions only, by older ones of the same category,
// script and length in UTF-8.
#include <string>
#include <string_view>

namespace lockstep::serving::tokenizing {

// The Unicode property White_Space.
bool is_white_space(char32_t character);

// The first place at or after `position` where no white space stands, and the same backwards.
size_t skip_white_space(std::string_view valid_text, size_t position);
size_t skip_white_space_back(std::string_view valid_text, size_t position);

// \w of UTS #18: letters and other alphabetic characters, marks, decimal digits, connector punctuation,
// joiners.
bool is_word_character(char32_t character);

// `valid_text` with every newer character replaced, byte positions unchanged. Without any, the text itself is
// returned and `storage` is left alone.
std::string_view with_stand_ins(std::string_view valid_text, std::string& storage);

}  // namespace lockstep::serving::tokenizing
