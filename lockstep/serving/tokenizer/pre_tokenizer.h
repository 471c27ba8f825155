#pragma once
// The "pre_tokenizer" of tokenizer.json: cuts a text into the pieces inside which BPE merges. Splits by
// pattern, runs of digits, and ByteLevel, which must come last; other kinds are refused by name.
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/pattern.h"

namespace lockstep::serving::tokenizing {

// The pieces of one text, in order. They point into the text, or into `owned` where a space was put in front
// of one.
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

class PreTokenizer {
 public:
  // Steps of tokenizer.json with a ByteLevel at the end. `path` is how an error names the value.
  static Result<PreTokenizer> read(const Json& value, const std::string& path);

  // Where the budget runs out, the rest of the piece in hand stays uncut: deterministic, and never a failure.
  Pieces cut(std::string_view valid_text) const;

 private:
  Status add(const Json& value, const std::string& path);
  Status add_split(const Json& value, const std::string& path);
  Status add_digits(const Json& value, const std::string& path);
  Status add_byte_level(const Json& value, const std::string& path);

  std::vector<SplitStep> splits_;
  enum class ByteLevel : unsigned char { kAbsent, kPlain, kPrefixSpace } byte_level_ = ByteLevel::kAbsent;
  // Splits that come after the space was put in front: ByteLevel's own pattern.
  size_t num_splits_before_space_ = 0;
};

}  // namespace lockstep::serving::tokenizing
