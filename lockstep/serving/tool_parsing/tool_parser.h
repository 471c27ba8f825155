#pragma once
// Finds the calls of tools in what a model wrote after its reasoning. The front door of this folder.
//
// A parser is pushed lexemes as they come and adds deltas: content outside calls, and for each call its name,
// pieces of its arguments as they are written, and its end. The deltas of one output add up to the same reply
// however it was cut. What turns out to be no call before its name is known becomes content; a call that is
// cut off or whose arguments are not a JSON object has no kCallEnd. Line feeds between content and calls are
// part of the frame and are left out.
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/reply/delta.h"
#include "lockstep/serving/reply/marker_scanner.h"

namespace lockstep::serving::tool_parsing {

enum class Format : unsigned char {
  kNone,
  kDeepSeek,  // <｜tool▁calls▁begin｜>... with the code fence of V3 and R1 or without, as V3.1 writes it
  kTagged,    // <tool_call>...</tool_call> around JSON (Qwen3, Hermes) or around <function=...> (Qwen3.5,
              // Qwen3-Coder)
  kDsml,      // <｜DSML｜function_calls>...: DeepSeek-V3.2
  kGlm,       // <tool_call>...</tool_call> around a name and <arg_key>...: GLM
  kMistral,   // [TOOL_CALLS]...: Mixtral and Mistral
  kLlama,     // a reply that is {"name", "parameters"}: Llama 3.1 and later
  kHarmony,   // messages to functions.NAME in the channels of gpt-oss
};
inline constexpr int kNumFormats = 8;

std::string_view name_of(Format format);
std::optional<Format> format_named(std::string_view name);
// All that format_named() knows: the formats' own names and what others call them.
std::vector<std::string_view> format_names();

// How a call is written, for a model whose template says nothing of tools.
std::string_view call_example(Format format);

// The markers that the format's parser wants to be told of, token_id left empty.
std::vector<Marker> markers_of(Format format);

class ToolParser {
 public:
  virtual ~ToolParser() = default;
  virtual void push(Lexeme lexeme, Deltas& out) = 0;
  virtual void finish(Deltas& out) = 0;
};

// `tools`: the request's array, of which the parameters' types are used where a format does not write JSON.
std::unique_ptr<ToolParser> make_parser(Format format, const Json& tools);

}  // namespace lockstep::serving::tool_parsing
