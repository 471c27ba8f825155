#pragma once
// What a request says of the form of its answer: OpenAI's response_format, SGLang's regex, ebnf and
// json_schema, vLLM's structured_outputs and guided_....
#include <optional>

#include "lockstep/serving/constraints/grammar_compiler.h"
#include "lockstep/serving/openai/fields.h"

namespace lockstep::serving::openai {

// Complaints go to `fields`. Two forms at once are one.
std::optional<constraints::OutputForm> read_output_form(Fields& fields);

}  // namespace lockstep::serving::openai
