#include "lockstep/serving/constraints/regex_check.h"

#include <algorithm>
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
    const std::string_view rest = pattern_.substr(at_);
    // What the library reads as something else.
    if (in_class_ && at_ == class_begin_ + 1 && rest.starts_with('^'))
      return refuse("\\^ at the start of a class (put it behind another character)");
    if (rest.starts_with("x{")) return refuse("\\x{ (write two digits)");
    if (rest.size() > 2 && rest[0] == 'u' && (rest[1] == 'd' || rest[1] == 'D') &&
        std::string_view("89abcdefABCDEF").find(rest[2]) != std::string_view::npos)
      return refuse("half of a character beyond 16 bits (write the character itself)");
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

namespace {

// Copies a pattern without its anchors, and with {0,1} for ?.
class JsonStringPattern {
 public:
  explicit JsonStringPattern(std::string_view pattern) : pattern_(pattern) {
    if (pattern_.starts_with('^')) pattern_.remove_prefix(1);
    if (pattern_.ends_with('$') && !pattern_.ends_with("\\$")) pattern_.remove_suffix(1);
  }

  // What cannot be; empty when all went well.
  std::string_view run() {
    constexpr std::string_view kCharacters =
        "a quote, a backslash, a control character or one that is not ASCII";
    if (!std::all_of(pattern_.begin(), pattern_.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != '"'; }))
      return kCharacters;
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\' &&
          std::string_view("\\nrtfv0xu").find(pattern_[at_ + 1]) != std::string_view::npos)
        return kCharacters;
      if (is_quantifier() && depth_ > 0) return "a quantifier inside of a group";
      step();
    }
    return has_quantifier_ && has_choice_ ? "alternatives and a quantifier outside of a group" : "";
  }
  const std::string& text() const { return text_; }

 private:
  bool is_quantifier() const {
    return !in_class_ && std::string_view("*+?{").find(pattern_[at_]) != std::string_view::npos;
  }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\') return copy(2);
    if (in_class_) {
      in_class_ = c != ']';
      return copy(1);
    }
    if (is_quantifier()) return quantifier();
    if (c == '(') {
      ++depth_;
      return copy(pattern_.substr(at_).starts_with("(?:") ? 3 : 1);
    }
    in_class_ = c == '[';
    if (c == ')') --depth_;
    if (c == '|' && depth_ == 0) has_choice_ = true;
    copy(1);
  }

  // A ? behind it makes it lazy, which is no other language.
  void quantifier() {
    has_quantifier_ = true;
    if (pattern_[at_] == '?') {
      text_ += "{0,1}";
      ++at_;
    } else {
      copy(pattern_[at_] == '{' ? std::min(pattern_.find('}', at_), pattern_.size() - 1) - at_ + 1 : 1);
    }
    if (at_ < pattern_.size() && pattern_[at_] == '?') ++at_;
  }

  void copy(size_t count) {
    text_ += pattern_.substr(at_, count);
    at_ = std::min(at_ + count, pattern_.size());
  }

  std::string_view pattern_;
  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_class_ = false, has_choice_ = false, has_quantifier_ = false;
};

}  // namespace

Result<std::string> pattern_of_json_string(std::string_view pattern, const std::string& field) {
  JsonStringPattern rewritten(pattern);
  if (const std::string_view what = rewritten.run(); !what.empty())
    return invalid_argument(field, "'{}' of {} bytes holds {}, which is not supported here", field,
                            pattern.size(), what);
  return rewritten.text();
}

Status check_regex(std::string_view pattern, const std::string& field) {
  return RegexCheck(pattern, field).run();
}

}  // namespace lockstep::serving::constraints
