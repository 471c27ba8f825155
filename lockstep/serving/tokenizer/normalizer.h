#pragma once
// The "normalizer" of tokenizer.json: Unicode normalization forms, one after another. Other kinds are refused
// by name.
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::tokenizing {

enum class NormalForm : unsigned char { kNfc, kNfd, kNfkc, kNfkd };

std::string normalize(std::string_view valid_text, NormalForm form);

class Normalizer {
 public:
  // null, NFC, NFD, NFKC, NFKD, or a Sequence of these. `path` is how an error names the value.
  static Result<Normalizer> read(const Json& value, const std::string& path);

  bool changes_nothing() const { return forms_.empty(); }
  std::string apply(std::string_view valid_text) const;

 private:
  std::vector<NormalForm> forms_;
};

}  // namespace lockstep::serving::tokenizing
