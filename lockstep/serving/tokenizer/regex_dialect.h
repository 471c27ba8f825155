#pragma once
// tokenizer.json writes its patterns in the dialect of Oniguruma (Ruby syntax); this turns one into a PCRE2
// pattern that means the same, or refuses it: a construct that the two read differently is translated or
// named in the error, never passed on. The result is for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE.
#include <string>
#include <string_view>

#include "lockstep/base/check.h"

namespace lockstep::serving::tokenizing {

// Supported: literals, ., ^ $ \A \z \Z, groups (plain, (?:, look-around, (?>, options i and m), classes with
// ranges, nesting and
// &&, \s \d \h and their negations, \p{} of general categories and common scripts, greedy, lazy and
// possessive quantifiers. Not: back-references, \w and \b (their meaning differs between libraries), named
// groups, conditionals, callouts.
Result<std::string> to_pcre2(std::string_view valid_pattern);

}  // namespace lockstep::serving::tokenizing
