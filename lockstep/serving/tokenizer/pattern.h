#pragma once
// A compiled pattern and its matches in a text: PCRE2 with its compiler to machine code where that works.
// Work is bounded: an attempt by a limit on backtracking, a text by a WorkBudget. Immutable; any number of
// threads may search at once, each with a Matcher of its own.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::serving::tokenizing {

// Steps that may still be spent on attempts which look far ahead. One budget serves all searches of one text.
class WorkBudget {
 public:
  explicit WorkBudget(uint64_t steps) : steps_(steps) {}
  bool spend(uint64_t steps) {
    steps_ = steps < steps_ ? steps_ - steps : 0;
    return steps_ > 0;
  }

 private:
  uint64_t steps_;
};

// What a text of this size may cost.
constexpr uint64_t budget_of(size_t num_bytes) { return (uint64_t{1} << 26) + 512 * num_bytes; }

struct PatternMatch {
  size_t begin = 0;
  size_t end = 0;  // equal to begin for an empty match
  bool operator==(const PatternMatch&) const = default;
};

enum class SearchEnd : unsigned char {
  kComplete,
  kGaveUp,  // a limit was reached; the matches before that are good
};

class Pattern {
 public:
  // Text is looked at through windows that begin at `window_bytes` and double only where an attempt reaches
  // their end.
  static constexpr size_t kWindowBytes = 1024;

  // `field` is how errors name the pattern. A regex is in the dialect of regex_dialect.h.
  static Result<Pattern> regex(std::string_view pattern, const std::string& field,
                               size_t window_bytes = kWindowBytes);
  static Result<Pattern> literal(std::string_view text, const std::string& field);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  class Matcher;
  Matcher matcher() const;

 private:
  struct Compiled;
  explicit Pattern(std::unique_ptr<Compiled> compiled);
  static Result<Pattern> compile(std::string_view pattern, uint32_t options, const std::string& field,
                                 size_t window_bytes);

  std::unique_ptr<Compiled> compiled_;
};

// What one thread needs to search; taken from the pattern's pool and given back at the end. Must not outlive
// the pattern.
class Pattern::Matcher {
 public:
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) = delete;
  ~Matcher();

  // Appends the matches in order, not overlapping; an empty match right behind the match before it is left
  // out.
  SearchEnd find_all(std::string_view valid_text, WorkBudget& budget, std::vector<PatternMatch>& found);

 private:
  friend class Pattern;
  struct Scratch;
  struct Window;
  Matcher(Compiled& compiled, std::unique_ptr<Scratch> scratch);
  int search(std::string_view text, size_t from, const Window& window, size_t max_steps);

  Compiled* compiled_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace lockstep::serving::tokenizing
