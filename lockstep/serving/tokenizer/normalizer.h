#pragma once
// The "normalizer" of tokenizer.json: Unicode normalization forms, replacing, prepending and stripping, one
// after another. Other kinds are refused by name.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/pattern.h"

namespace lockstep::serving::tokenizing {

enum class NormalForm : unsigned char { kNfc, kNfd, kNfkc, kNfkd };

std::string normalize(std::string_view valid_text, NormalForm form);

class Normalizer {
 public:
  // null, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, or a Sequence of these. `path` is how an error names
  // the value.
  static Result<Normalizer> read(const Json& value, const std::string& path);

  bool changes_nothing() const { return steps_.empty(); }
  std::string apply(std::string_view valid_text) const;

 private:
  enum class Kind : unsigned char { kForm, kPrepend, kReplaceText, kReplacePattern, kStripStart, kStripEnd };
  struct Step {
    Kind kind = Kind::kForm;
    NormalForm form = NormalForm::kNfc;
    std::string from;                // kReplaceText
    std::string text;                // what is put there
    std::optional<Pattern> pattern;  // kReplacePattern
  };
  Status add(const Json& value, const std::string& type, const std::string& path);
  Status add_replace(const Json& value, const std::string& path);
  static std::string apply(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace lockstep::serving::tokenizing
