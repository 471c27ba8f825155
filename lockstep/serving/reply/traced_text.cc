#include "lockstep/serving/reply/traced_text.h"

#include <algorithm>
#include <utility>

namespace lockstep::serving {

TracedText::TracedText(std::string text, int token_idx) : text_(std::move(text)) {
  if (token_idx != kNoToken) starts_.push_back({0, token_idx});
}

void TracedText::append(TracedText other) {
  if (holds_nothing()) {
    *this = std::move(other);
    return;
  }
  for (const Start& start : other.starts_) starts_.push_back({text_.size() + start.offset, start.token_idx});
  text_ += other.text_;
}

TracedText TracedText::take(size_t num_bytes) {
  num_bytes = std::min(num_bytes, text_.size());
  TracedText front;
  front.text_ = text_.substr(0, num_bytes);
  text_.erase(0, num_bytes);
  const auto rest =
      std::find_if(starts_.begin(), starts_.end(), [&](const Start& s) { return s.offset >= num_bytes; });
  front.starts_.assign(starts_.begin(), rest);
  starts_.erase(starts_.begin(), rest);
  for (Start& start : starts_) start.offset -= num_bytes;
  return front;
}

TracedText TracedText::take_all() { return std::exchange(*this, TracedText()); }

void TracedText::drop(size_t num_bytes) {
  num_bytes = std::min(num_bytes, text_.size());
  size_t num_dropped = 0;
  while (num_dropped < starts_.size()) {
    const size_t end = num_dropped + 1 < starts_.size() ? starts_[num_dropped + 1].offset : text_.size();
    if (starts_[num_dropped].offset >= num_bytes || end > num_bytes) break;
    ++num_dropped;
  }
  starts_.erase(starts_.begin(), starts_.begin() + static_cast<std::ptrdiff_t>(num_dropped));
  text_.erase(0, num_bytes);
  for (Start& start : starts_) start.offset -= std::min(start.offset, num_bytes);
}

size_t leading_newlines(std::string_view text) {
  return std::min(text.find_first_not_of("\r\n"), text.size());
}

size_t trailing_newlines(std::string_view text) {
  const size_t last = text.find_last_not_of("\r\n");
  return last == std::string_view::npos ? text.size() : text.size() - last - 1;
}

size_t partial_match_at_end(std::string_view text, std::string_view pattern) {
  if (pattern.empty()) return 0;
  for (size_t length = std::min(text.size(), pattern.size() - 1); length > 0; --length)
    if (text.substr(text.size() - length) == pattern.substr(0, length)) return length;
  return 0;
}

}  // namespace lockstep::serving
