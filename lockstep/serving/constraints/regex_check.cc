#include "lockstep/serving/constraints/regex_check.h"

#include <cstdint>

namespace lockstep::serving::constraints {
namespace {

constexpr size_t kMaxBytes = 4096;
constexpr int64_t kMaxRepeats = 4096;

// What a backslash may stand before.
constexpr std::string_view kEscapes = "dDwWsSnrtfv0xu\\/.^$*+?()[]{}|-\"' &~#@!%,:;<=>_`";

class RegexCheck {
 public:
  RegexCheck(std::string_view pattern, const std::string& field) : pattern_(pattern), field_(field) {}

  Status run() {
    if (pattern_.size() > kMaxBytes)
      return invalid_argument(field_, "'{}' has {} bytes, more than the limit of {}", field_, pattern_.size(),
                              kMaxBytes);
    for (at_ = 0; at_ < pattern_.size(); ++at_)
      if (Status status = step(pattern_[at_]); !status) return status;
    if (in_class_) return refuse("a class without its ]");
    return Done{};
  }

 private:
  Status refuse(std::string_view what) const {
    return invalid_argument(field_, "'{}' holds {} at byte {}, which is not supported", field_, what, at_);
  }

  Status step(char c) {
    if (c == '\\') return escape();
    if (in_class_) {
      in_class_ = c != ']' || at_ == class_begin_;
      return Done{};
    }
    switch (c) {
      case '[':
        in_class_ = true;
        class_begin_ = at_ + (pattern_.substr(at_ + 1).starts_with('^') ? 2 : 1);
        if (pattern_.substr(class_begin_).starts_with(']')) return refuse("an empty class");
        return Done{};
      case '^':
        return at_ == 0 ? Status(Done{}) : refuse("^ that is not at the start");
      case '$':
        return at_ + 1 == pattern_.size() ? Status(Done{}) : refuse("$ that is not at the end");
      case '(':
        if (pattern_.substr(at_ + 1).starts_with('?') && !pattern_.substr(at_ + 1).starts_with("?:"))
          return refuse("a group that is neither plain nor (?:");
        return Done{};
      case '{':
        return repeats();
      default:
        return Done{};
    }
  }

  Status escape() {
    if (++at_ == pattern_.size()) return refuse("a backslash at the end");
    if (kEscapes.find(pattern_[at_]) == std::string_view::npos) return refuse("this escape");
    return Done{};
  }

  Status repeats() {
    int64_t count = 0;
    for (size_t i = at_ + 1; i < pattern_.size() && pattern_[i] != '}'; ++i) {
      if (pattern_[i] == ',') {
        count = 0;
      } else if (pattern_[i] < '0' || pattern_[i] > '9') {
        return refuse("a brace that holds no counts");
      } else if ((count = count * 10 + (pattern_[i] - '0')) > kMaxRepeats) {
        return refuse("a count above 4096");
      }
    }
    return Done{};
  }

  const std::string_view pattern_;
  const std::string& field_;
  size_t at_ = 0;
  bool in_class_ = false;
  size_t class_begin_ = 0;  // the first place inside
};

}  // namespace

Status check_regex(std::string_view pattern, const std::string& field) {
  return RegexCheck(pattern, field).run();
}

}  // namespace lockstep::serving::constraints
