#include "lockstep/serving/chat_template/text_search.h"

#include <cstring>

namespace lockstep::serving::jinja {

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  const std::string backwards(text.rbegin(), text.rend());
  const std::string needle_backwards(needle.rbegin(), needle.rend());
  const size_t found = find_text(backwards, needle_backwards);
  return found == std::string_view::npos ? found : text.size() - found - needle.size();
}

size_t count_text(std::string_view text, std::string_view needle) {
  size_t count = 0;
  for (size_t at = find_text(text, needle); at != std::string_view::npos;
       at = find_text(text, needle, at + needle.size()))
    ++count;
  return count;
}

}  // namespace lockstep::serving::jinja
