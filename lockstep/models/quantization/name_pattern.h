#pragma once
// Lists of modules in quantization configs: names, shell wildcards (ModelOpt) or regular expressions
// (compressed-tensors, "re:…"). Patterns are hostile: they are compiled with limits and matched with limits.
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/base/check.h"

namespace lockstep::models {

class NamePattern {
 public:
  enum class Dialect : uint8_t {
    kModule,     // a name, a name of a parent, or the last parts of a name
    kWildcards,  // * and ? over the whole name, or a name as above
    kRegex,      // anchored at the beginning, as Python's re.match
  };
  // Refused: a pattern that is too long or is no regular expression.
  static Result<NamePattern> parse(const std::string& text, Dialect dialect);

  bool matches(const std::string& module) const;

 private:
  struct Compiled;
  NamePattern(std::string text, std::shared_ptr<const Compiled> compiled)
      : text_(std::move(text)), compiled_(std::move(compiled)) {}
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;  // none: text_ is a module
};

}  // namespace lockstep::models
