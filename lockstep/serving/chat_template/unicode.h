#pragma once
// Code points of UTF-8 text with Python's ideas of white space, case and printability. All text here is valid
// UTF-8 (replace_invalid() makes it so at the border). Only the template interpreter uses it.
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::serving::jinja {

bool is_valid_utf8(std::string_view text);
std::string replace_invalid(std::string_view text);  // each invalid byte becomes U+FFFD

size_t count_chars(std::string_view text);
// Bytes before character char_idx (at most text.size()).
size_t byte_offset(std::string_view text, size_t char_idx);
// The character at `offset`, which moves behind it. offset < text.size().
char32_t next_char(std::string_view text, size_t& offset);
// Where the character that ends at `end` begins. end > 0.
size_t previous_offset(std::string_view text, size_t end);
void append_char(std::string& out, char32_t c);
std::u32string to_chars(std::string_view text);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_word(char32_t c);  // \w of Python's re

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);    // str.title
std::string capitalize(std::string_view text);  // str.capitalize
std::string swap_case(std::string_view text);
std::string fold_case(std::string_view text);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace lockstep::serving::jinja
