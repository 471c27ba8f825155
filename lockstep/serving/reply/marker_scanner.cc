#include "lockstep/serving/reply/marker_scanner.h"

#include <algorithm>
#include <utility>

namespace lockstep::serving {

MarkerScanner::MarkerScanner(std::vector<Marker> markers) {
  for (Marker& marker : markers) (marker.token_id ? by_id_ : by_text_).push_back(std::move(marker));
}

std::vector<Lexeme> MarkerScanner::push(int32_t token_id, TracedText text) {
  std::vector<Lexeme> out;
  if (const Marker* marker = find(token_id)) {
    if (!held_.holds_nothing()) out.push_back({MarkerKind::kText, held_.take_all()});
    out.push_back({marker->kind, std::move(text)});
    return out;
  }
  held_.append(std::move(text));
  if (!by_text_.empty()) scan_text(out);
  if (const size_t free = held_.text().size() - held_bytes(); free > 0)
    out.push_back({MarkerKind::kText, held_.take(free)});
  return out;
}

std::vector<Lexeme> MarkerScanner::finish() {
  std::vector<Lexeme> out;
  if (!held_.holds_nothing()) out.push_back({MarkerKind::kText, held_.take_all()});
  return out;
}

const Marker* MarkerScanner::find(int32_t token_id) const {
  const auto found =
      std::find_if(by_id_.begin(), by_id_.end(), [&](const Marker& m) { return m.token_id == token_id; });
  return found == by_id_.end() ? nullptr : &*found;
}

void MarkerScanner::scan_text(std::vector<Lexeme>& out) {
  for (;;) {
    size_t first = std::string::npos;
    const Marker* marker = nullptr;
    for (const Marker& candidate : by_text_) {
      const size_t place = held_.text().find(candidate.text);
      if (place < first) first = place, marker = &candidate;
    }
    if (marker == nullptr) return;
    if (first > 0) out.push_back({MarkerKind::kText, held_.take(first)});
    out.push_back({marker->kind, held_.take(marker->text.size())});
  }
}

size_t MarkerScanner::held_bytes() const {
  size_t held = 0;
  for (const Marker& marker : by_text_)
    held = std::max(held, partial_match_at_end(held_.text(), marker.text));
  return held;
}

}  // namespace lockstep::serving
