#pragma once
// The "pre_tokenizer" of tokenizer.json: cuts a text into the pieces that the model encodes one by one.
// Splits by pattern, runs of digits, marks for spaces, and ByteLevel, which must come last; other kinds are
// refused by name.
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/pattern.h"
#include "lockstep/serving/tokenizer/text_steps.h"

namespace lockstep::serving::tokenizing {

// The pieces of one text, in order. They point into the text, or into `owned` where a step changed them.
struct Pieces {
  std::vector<std::string_view> pieces;
  std::deque<std::string> owned;
};

// What happens to the matches of a split's pattern. Contiguous joins neighbours that are alike.
enum class SplitBehavior : unsigned char {
  kIsolated,
  kRemoved,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};
enum class SplitSense : unsigned char { kMatchesAreDelimiters, kGapsAreDelimiters };

struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior;
  SplitSense sense;
};

// Whether a text begins the whole that is encoded or follows an added token.
enum class TextPlace : unsigned char { kFirst, kLater };

class PreTokenizer {
 public:
  // null, or steps of tokenizer.json. `path` is how an error names the value.
  static Result<PreTokenizer> read(const Json& value, const std::string& path);

  // Whether the pieces are bytes, which a vocabulary spells in the byte-level alphabet.
  bool is_byte_level() const { return is_byte_level_; }

  // Where the budget runs out, the rest of the piece in hand stays uncut: deterministic, and never a failure.
  Pieces cut(std::string_view valid_text, TextPlace place) const;

 private:
  struct PrefixSpace {};
  struct Step {  // exactly one is set
    std::optional<SplitStep> split;
    std::optional<MetaspaceOptions> metaspace;
    std::optional<PrefixSpace> prefix_space;
  };
  Status add(const Json& value, const std::string& path);
  Status add_split(const Json& value, const std::string& path);
  Status add_digits(const Json& value, const std::string& path);
  Status add_byte_level(const Json& value, const std::string& path);
  Status add_pattern(std::string_view pattern, SplitBehavior behavior, const std::string& path);

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
};

}  // namespace lockstep::serving::tokenizing
