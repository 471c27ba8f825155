#pragma once
// The calls that a request's tools allow, as a form in the way that the model writes calls.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/constraints/grammar_compiler.h"
#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::serving::constraints {

// How a model's calls are written, as far as its format leaves it open.
struct CallStyle {
  tool_parsing::Format format = tool_parsing::Format::kNone;
  std::string_view template_source;
  // The id of a marker that the tokenizer holds as one token.
  std::function<std::optional<int32_t>(std::string_view text)> token_id;
};

enum class HowMany : unsigned char { kOne, kOneOrMore };

struct ToolForm {
  OutputForm form;
  std::string begin;  // with kIfCalled: the text behind which the form stands
};

// The reply is calls and nothing else. The arguments follow the tools' schemas; of a tool that is not
// strict, what cannot be enforced is left out of its schema.
Result<ToolForm> required_calls(const Json& tools, const CallStyle& style, HowMany how_many);

// The reply is what it may be until a call begins; from there on it is calls.
Result<ToolForm> calls_that_begin(const Json& tools, const CallStyle& style, HowMany how_many);

bool has_strict_tool(const Json& tools);

}  // namespace lockstep::serving::constraints
