#include "lockstep/serving/tokenizer/regex_dialect.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

constexpr int kMaxNesting = 64;
constexpr int kMaxRepeats = 1000;

constexpr std::string_view kCategories[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
                                            "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                            "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc", "Cf"};
constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"letter", "L"},    {"uppercase_letter", "Lu"}, {"lowercase_letter", "Ll"},    {"mark", "M"},
    {"number", "N"},    {"decimal_number", "Nd"},   {"punctuation", "P"},          {"symbol", "S"},
    {"separator", "Z"}, {"space", "White_Space"},   {"white_space", "White_Space"}};
// Oniguruma means the script itself where PCRE2's bare name also takes script extensions: hence "sc:". Of
// Arabic, Cyrillic, Devanagari and Myanmar the characters of four bytes that are newer than PCRE2's tables
// are missed.
constexpr std::string_view kScripts[] = {
    "Han",      "Hiragana", "Katakana", "Hangul", "Bopomofo",   "Latin",    "Greek",
    "Cyrillic", "Armenian", "Hebrew",   "Arabic", "Devanagari", "Bengali",  "Tamil",
    "Telugu",   "Thai",     "Lao",      "Khmer",  "Myanmar",    "Georgian", "Ethiopic"};
// Letters whose sequence folds to one character (ß, ﬁ, ﬅ): Oniguruma matches that character too, PCRE2 does
// not.
constexpr std::string_view kFoldingPairs[] = {"ss", "ff", "fi", "fl", "st"};

bool is_alnum(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

void append_literal(char32_t c, std::string& out) {
  if (c >= 0x80 || is_alnum(c)) {
    append_code_point(c, out);
  } else {
    out += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(c));
  }
}

// The items of a class as PCRE2 writes them inside brackets, and what cannot stand inside brackets there.
struct ClassUnion {
  std::string items;
  std::vector<std::string> nested;  // patterns that each match one character
};

// Atomic, for a character that several alternatives match is one match, not a way to try again.
std::string pattern_of(const ClassUnion& u) {
  if (u.nested.empty()) return "[" + u.items + "]";
  std::string out = "(?>";
  if (!u.items.empty()) out += "[" + u.items + "]";
  for (const std::string& pattern : u.nested) {
    if (out.size() > 3) out += '|';
    out += pattern;
  }
  return out + ")";
}

std::string negation_of(const std::string& pattern) { return "(?:(?!" + pattern + ")(?s:.))"; }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    alternatives(0);
    if (error_.empty() && !at_end()) fail("an unmatched \")\"");
    if (!error_.empty()) return invalid_argument("", "{} at byte {}", error_, position_);
    return std::move(out_);
  }

 private:
  bool at_end() const { return position_ >= pattern_.size(); }
  bool failed() const { return !error_.empty(); }
  bool looks_at(std::string_view text) const { return pattern_.substr(position_).starts_with(text); }
  bool take(std::string_view text) {
    if (!looks_at(text)) return false;
    position_ += text.size();
    return true;
  }
  char32_t take_character() {
    const CodePoint c = code_point_at(pattern_, position_);
    position_ += static_cast<size_t>(c.num_bytes);
    return c.value;
  }
  void fail(std::string_view why) {
    if (!failed()) error_ = why;
  }

  // A group's body up to its ")" or the end of the pattern.
  void alternatives(int depth) {
    if (depth > kMaxNesting) return fail("groups nested too deeply");
    const bool caseless_outside = caseless_;
    is_branch_start_ = true;
    while (!failed() && !at_end() && !looks_at(")")) {
      if (take("|")) {
        out_ += '|';
        is_branch_start_ = true;
        last_letter_ = 0;
        continue;
      }
      const size_t begin = out_.size();
      const bool repeatable = atom(depth);
      is_branch_start_ = false;
      if (!failed()) quantifier(begin, repeatable);
    }
    caseless_ = caseless_outside;
  }

  // One thing that a quantifier may follow; false for what none may follow.
  bool atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) {
      last_letter_ = 0;
      out_ += character_class(depth);
      return true;
    }
    if (take("\\")) return escape();
    if (take(".") || take("^") || take("$")) {
      last_letter_ = 0;
      const char c = pattern_[position_ - 1];
      // A line starts behind a line feed unless the text ends there. Written out, because PCRE2's own ^ asks
      // whether the part of the text that it is shown ends there, without saying that it came to the end of
      // that part.
      out_ += c == '^' ? "(?:\\A|(?<=\\n)(?!\\z))" : std::string(1, c);
      return c == '.';
    }
    if (looks_at("*") || looks_at("+") || looks_at("?"))
      return fail("a quantifier with nothing before it"), false;
    literal(take_character());
    return true;
  }

  void literal(char32_t c) {
    if (caseless_) {
      if (c >= 0x80) return fail("a character outside ASCII without regard to case");
      const char letter = lower(static_cast<char>(c));
      const std::array<char, 2> pair = {last_letter_, letter};
      for (const std::string_view folding : kFoldingPairs)
        if (folding == std::string_view(pair.data(), 2))
          return fail(
              fmt::format("\"{}\" without regard to case, which can also mean one character,", folding));
      last_letter_ = letter;
    }
    append_literal(c, out_);
  }

  bool group(int depth) {
    last_letter_ = 0;
    if (looks_at("*")) return fail("\"(*\""), false;
    for (const std::string_view opening : {"?:", "?=", "?!", "?<=", "?<!", "?>"}) {
      if (!take(opening)) continue;
      out_ += fmt::format("({}", opening);
      return close_group(depth, opening == "?:" || opening == "?>");
    }
    if (looks_at("?")) return options(depth);
    out_ += "(?:";  // nothing refers to what a group holds
    return close_group(depth, true);
  }

  bool close_group(int depth, bool repeatable) {
    alternatives(depth + 1);
    last_letter_ = 0;
    if (!failed() && !take(")")) fail("a group without its \")\"");
    out_ += ')';
    return repeatable;
  }

  // (?i) to the end of the group, or (?i:...); Ruby's m is the dot that also matches a line feed.
  bool options(int depth) {
    const bool may_be_isolated = is_branch_start_;
    position_ += 1;
    bool on = true;
    bool caseless = caseless_;
    std::string text = "(?";
    while (!at_end() && (looks_at("i") || looks_at("m") || looks_at("-"))) {
      const char option = pattern_[position_++];
      if (option == '-' && !on) return fail("an option"), false;
      if (option == '-') on = false;
      if (option == 'i') caseless = on;
      text += option == 'm' ? 's' : option;
    }
    if (take(":")) {
      const bool outside = std::exchange(caseless_, caseless);
      out_ += text + ":";
      const bool repeatable = close_group(depth, true);
      caseless_ = outside;
      return repeatable;
    }
    if (!take(")")) return fail("an unknown kind of group"), false;
    if (!may_be_isolated) return fail("an option that is set after the start of a branch"), false;
    caseless_ = caseless;
    out_ += text + ")";
    return false;
  }

  bool escape() {
    if (at_end()) return fail("a \"\\\" at the end"), false;
    if (take("A") || take("z") || take("Z")) {
      out_ += fmt::format("\\{}", pattern_[position_ - 1]);
      return false;
    }
    if (const auto members = class_escape()) {
      last_letter_ = 0;
      out_ += pattern_of(*members);
    } else if (!failed()) {
      literal(escaped_character());
    }
    return true;
  }

  // \s \d \h \p{...} and their negations; nothing when the escape means one character.
  std::optional<ClassUnion> class_escape() {
    if (take("s")) return ClassUnion{"\\p{White_Space}", {}};
    if (take("S")) return ClassUnion{"\\P{White_Space}", {}};
    if (take("d")) return ClassUnion{"\\p{Nd}", {}};
    if (take("D")) return ClassUnion{"\\P{Nd}", {}};
    if (take("h")) return ClassUnion{"0-9A-Fa-f", {}};
    if (take("H")) return ClassUnion{"", {"[^0-9A-Fa-f]"}};
    if (!looks_at("p{") && !looks_at("P{")) return std::nullopt;
    bool negated = pattern_[position_] == 'P';
    position_ += 2;
    if (take("^")) negated = !negated;
    const size_t end = pattern_.find('}', position_);
    if (end == std::string_view::npos) return fail("a \\p{ without its \"}\""), std::nullopt;
    const std::string name = property(pattern_.substr(position_, end - position_));
    if (name.empty())
      return fail(fmt::format("the property \"{}\"", pattern_.substr(position_, end - position_))),
             std::nullopt;
    if (caseless_ && name.starts_with('L') && name.size() == 2)
      return fail("\\p{} without regard to case"), std::nullopt;
    position_ = end + 1;
    return ClassUnion{fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name), {}};
  }

  static std::string property(std::string_view name) {
    std::string key(name);
    std::transform(key.begin(), key.end(), key.begin(), lower);
    const auto same = [&](std::string_view known) {
      return std::equal(known.begin(), known.end(), key.begin(), key.end(),
                        [](char a, char b) { return lower(a) == b; });
    };
    for (const std::string_view category : kCategories)
      if (same(category)) return std::string(category);
    for (const auto& [long_name, meaning] : kLongNames)
      if (same(long_name)) return std::string(meaning);
    for (const std::string_view script : kScripts)
      if (same(script)) return fmt::format("sc:{}", script);
    return {};
  }

  char32_t escaped_character() {
    const char32_t c = take_character();
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1B;
      case 'u':
        return hexadecimal(4, 4);
      case 'x':
        return take("{") ? braced_hexadecimal() : hexadecimal(1, 2);
      default:
        break;
    }
    if (is_alnum(c)) fail(fmt::format("the escape \"\\{}\"", static_cast<char>(c)));
    return c;
  }

  char32_t braced_hexadecimal() {
    const char32_t value = hexadecimal(1, 6);
    if (!take("}")) fail("a \\x{ without its \"}\"");
    return value;
  }

  char32_t hexadecimal(int min_digits, int max_digits) {
    char32_t value = 0;
    int num_digits = 0;
    for (; num_digits < max_digits && !at_end() && hex_value(pattern_[position_]) >= 0; ++num_digits)
      value = value * 16 + static_cast<char32_t>(hex_value(pattern_[position_++]));
    if (num_digits < min_digits) fail("a hexadecimal escape without its digits");
    // \xHH above 7F means a byte to Oniguruma.
    const bool is_byte = max_digits == 2 && value >= 0x80;
    if (is_byte || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      fail("a hexadecimal escape of no character");
    return failed() ? U'?' : value;
  }

  // Behind the "[": operands joined by &&, up to the "]". Returns a pattern that matches one character.
  std::string character_class(int depth) {
    if (depth > kMaxNesting) return fail("classes nested too deeply"), "";
    const bool negated = take("^");
    std::vector<ClassUnion> operands(1);
    bool is_first = true;
    while (!failed() && !(looks_at("]") && !is_first)) {
      if (at_end()) return fail("a class without its \"]\""), "";
      if (take("&&")) {
        if (operands.back().items.empty() && operands.back().nested.empty())
          fail("an && with nothing before it");
        operands.emplace_back();
      } else {
        class_item(operands.back(), depth);
      }
      is_first = false;
    }
    position_ += 1;
    if (failed()) return "";
    if (operands.back().items.empty() && operands.back().nested.empty())
      return fail("an && with nothing behind it"), "";
    if (operands.size() == 1 && operands[0].nested.empty())
      return (negated ? "[^" : "[") + operands[0].items + "]";
    std::string all = "(?:";
    for (size_t i = 0; i + 1 < operands.size(); ++i) all += "(?=" + pattern_of(operands[i]) + ")";
    all += pattern_of(operands.back()) + ")";
    return negated ? negation_of(all) : all;
  }

  void class_item(ClassUnion& members, int depth) {
    if (looks_at("[:")) return fail("a POSIX class");
    if (take("[")) {
      members.nested.push_back(character_class(depth + 1));
      return;
    }
    if (looks_at("\\")) {
      position_ += 1;
      if (at_end()) return fail("a \"\\\" at the end");
      if (const auto escaped = class_escape()) {
        members.items += escaped->items;
        members.nested.insert(members.nested.end(), escaped->nested.begin(), escaped->nested.end());
        if (looks_at("-") && !looks_at("-]")) fail("a range that starts with a class");
        return;
      }
      if (failed()) return;
      return range(escaped_character(), members);
    }
    const char32_t c = take_character();
    const bool is_first = members.items.empty() && members.nested.empty();
    if (c == '-' && !is_first && !looks_at("]"))
      return fail("a \"-\" that is neither first nor last nor part of a range");
    range(c, members);
  }

  void range(char32_t first, ClassUnion& members) {
    char32_t last = first;
    if (looks_at("-") && !looks_at("-]") && !looks_at("-&&")) {
      position_ += 1;
      if (looks_at("[")) return fail("a range that ends with a class");
      last = range_end();
    }
    if (failed()) return;
    if (last < first) return fail("a range that runs backwards");
    if (caseless_ && last >= 0x80) return fail("a character outside ASCII without regard to case");
    append_literal(first, members.items);
    if (last == first) return;
    members.items += '-';
    append_literal(last, members.items);
  }

  char32_t range_end() {
    if (at_end()) return fail("a class without its \"]\""), U'?';
    if (!take("\\")) return take_character();
    if (at_end()) return fail("a \"\\\" at the end"), U'?';
    if (class_escape()) return fail("a range that ends with a class"), U'?';
    return failed() ? U'?' : escaped_character();
  }

  // * + ? {n} {n,} {,m} {n,m}, then ? (lazy) or + (possessive). `begin`: where the repeated thing starts in
  // the output.
  void quantifier(size_t begin, bool repeatable) {
    if (take("*") || take("+") || take("?")) {
      out_ += pattern_[position_ - 1];
      if (take("?") || take("+")) out_ += pattern_[position_ - 1];
    } else if (const auto repeat = interval()) {
      repeat_interval(begin, *repeat);
    } else {
      return;
    }
    last_letter_ = 0;
    if (!repeatable) fail("a quantifier behind something that has no length");
    if (looks_at("*") || looks_at("+") || looks_at("?") || interval()) fail("a quantifier of a quantifier");
  }

  struct Repeat {
    int low = 0;
    std::optional<int> high;  // none: without end
    bool has_comma = false;
  };

  // Behind an interval Ruby's + is not possessive: it repeats the interval. Written with one repetition where
  // that is possible, because a repetition of a repetition can be tried in exponentially many ways.
  void repeat_interval(size_t begin, const Repeat& repeat) {
    std::string text = repeat.has_comma ? fmt::format("{{{},", repeat.low) : "{";
    if (repeat.high) text += std::to_string(*repeat.high);
    text += '}';
    if (take("?")) {
      if (!repeat.has_comma) fail("{n}?");
      text += '?';
    } else if (take("+") && repeat.high) {
      const bool is_one_repetition = repeat.low <= 1 && *repeat.high >= 1;
      if (!is_one_repetition) out_.insert(begin, "(?:");
      text = is_one_repetition ? std::string(1, repeat.low == 0 ? '*' : '+') : text + ")+";
    }
    out_ += text;
  }

  // Nothing, and nothing taken, when what follows is no interval: a brace is then an ordinary character.
  std::optional<Repeat> interval() {
    const size_t begin = position_;
    if (!take("{")) return std::nullopt;
    const std::optional<int> low = repeats();
    const bool has_comma = take(",");
    const std::optional<int> high = has_comma ? repeats() : low;
    if (!take("}") || (!low && !high)) {
      position_ = begin;
      return std::nullopt;
    }
    if (low.value_or(0) > kMaxRepeats || high.value_or(0) > kMaxRepeats) fail("too large a repetition");
    if (high && *high < low.value_or(0)) fail("a repetition that runs backwards");
    return Repeat{low.value_or(0), high, has_comma};
  }

  std::optional<int> repeats() {
    std::optional<int> value;
    while (!at_end() && pattern_[position_] >= '0' && pattern_[position_] <= '9')
      value = std::min(value.value_or(0) * 10 + (pattern_[position_++] - '0'), kMaxRepeats + 1);
    return value;
  }

  std::string_view pattern_;
  size_t position_ = 0;
  std::string out_;
  std::string error_;
  bool caseless_ = false;
  bool is_branch_start_ = true;
  char last_letter_ = 0;  // the letter just before, when case is disregarded
};

}  // namespace

Result<std::string> to_pcre2(std::string_view valid_pattern) { return Translator(valid_pattern).run(); }

}  // namespace lockstep::serving::tokenizing
