#include "lockstep/serving/reply/stop_strings.h"

#include <algorithm>
#include <utility>

namespace lockstep::serving {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

TracedText StopStrings::push(TracedText text) {
  if (matched_) return {};
  if (strings_.empty()) return text;
  held_.append(std::move(text));
  size_t first_end = std::string::npos, begin = 0, held = 0;
  for (const std::string& string : strings_) {
    const size_t place = held_.text().find(string);
    if (place == std::string::npos) {
      held = std::max(held, partial_match_at_end(held_.text(), string));
      continue;
    }
    const size_t end = place + string.size();
    if (end < first_end || (end == first_end && place < begin))
      first_end = end, begin = place, match_ = string;
  }
  if (first_end == std::string::npos) return held_.take(held_.text().size() - held);
  matched_ = true;
  TracedText before = held_.take(begin);
  held_ = {};
  return before;
}

TracedText StopStrings::finish() { return held_.take_all(); }

}  // namespace lockstep::serving
