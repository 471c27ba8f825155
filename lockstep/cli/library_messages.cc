#include "lockstep/cli/library_messages.h"

#include <iostream>

#include "lockstep/base/log.h"

namespace lockstep::cli {
namespace {

constexpr size_t kLongestLine = 4096;  // what is longer becomes several

}  // namespace

LibraryMessages::LibraryMessages() : before_(std::cerr.rdbuf(this)) {}

LibraryMessages::~LibraryMessages() { std::cerr.rdbuf(before_); }

LibraryMessages::int_type LibraryMessages::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
  const char one = traits_type::to_char_type(character);
  take({&one, 1});
  return character;
}

std::streamsize LibraryMessages::xsputn(const char* text, std::streamsize size) {
  take({text, static_cast<size_t>(size)});
  return size;
}

void LibraryMessages::take(std::string_view text) {
  const std::lock_guard lock(mutex_);
  for (const char c : text) {
    if (c != '\n') line_ += c;
    if (c != '\n' && line_.size() < kLongestLine) continue;
    if (!line_.empty()) log_debug("a library says: {}", line_);
    line_.clear();
  }
}

}  // namespace lockstep::cli
