#pragma once
// Ends a text before the first stop string in it. Text is held back while its end may be the beginning of a
// stop string. The match that is complete first wins (of two that end together, the longer), so that it does
// not matter how the text was cut.
#include <string>
#include <vector>

#include "lockstep/serving/reply/traced_text.h"

namespace lockstep::serving {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);

  // The text that is certain to stand before any stop string. After a match nothing comes any more.
  TracedText push(TracedText text);
  // What was held back; no stop string can follow.
  TracedText finish();

  bool matched() const { return matched_; }
  const std::string& match() const { return match_; }  // empty until then

 private:
  std::vector<std::string> strings_;
  TracedText held_;
  std::string match_;
  bool matched_ = false;
};

}  // namespace lockstep::serving
