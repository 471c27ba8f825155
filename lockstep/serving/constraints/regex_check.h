#pragma once
// Refuses by name what a pattern may hold and the grammar library would read otherwise or pass over.
#include <string>
#include <string_view>

#include "lockstep/base/check.h"

namespace lockstep::serving::constraints {

// Supported: literals, ., classes, \d \w \s and their negations, groups, alternatives, quantifiers, and ^ and
// $ at the pattern's ends.
Status check_regex(std::string_view pattern, const std::string& field);

// A checked pattern for the text of a JSON string, as the library then matches it right. It cannot where a
// quantifier stands inside of a group or beside alternatives, nor with a quote, a backslash, a control
// character or one beyond ASCII: these are refused.
Result<std::string> pattern_of_json_string(std::string_view pattern, const std::string& field);

}  // namespace lockstep::serving::constraints
