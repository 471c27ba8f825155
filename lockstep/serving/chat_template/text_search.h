#pragma once
// Substring search in linear time whatever the texts (std::string::find is quadratic on hostile ones).
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::serving::jinja {

// Bytes before the first occurrence at or behind `from`, or npos. An empty needle is found at `from`.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
// Bytes before the last occurrence, or npos. An empty needle is found at the end.
size_t find_last_text(std::string_view text, std::string_view needle);
// Occurrences that do not overlap. The needle is not empty.
size_t count_text(std::string_view text, std::string_view needle);

}  // namespace lockstep::serving::jinja
