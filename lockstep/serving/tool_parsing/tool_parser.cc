#include "lockstep/serving/tool_parsing/tool_parser.h"

#include <utility>

#include "lockstep/serving/tool_parsing/deepseek.h"
#include "lockstep/serving/tool_parsing/dsml.h"
#include "lockstep/serving/tool_parsing/harmony.h"
#include "lockstep/serving/tool_parsing/llama.h"
#include "lockstep/serving/tool_parsing/mistral.h"
#include "lockstep/serving/tool_parsing/tagged.h"

namespace lockstep::serving::tool_parsing {
namespace {

// Every lexeme is content.
class NoTools : public ToolParser {
 public:
  void push(Lexeme lexeme, Deltas& out) override {
    if (!lexeme.text.holds_nothing()) out.push_back({DeltaKind::kContent, std::move(lexeme.text)});
  }
  void finish(Deltas& /*out*/) override {}
};

// A format's own name comes first.
constexpr std::pair<std::string_view, Format> kNames[] = {{"none", Format::kNone},
                                                          {"deepseek", Format::kDeepSeek},
                                                          {"tagged", Format::kTagged},
                                                          {"deepseekv32", Format::kDsml},
                                                          {"glm", Format::kGlm},
                                                          {"mistral", Format::kMistral},
                                                          {"llama3", Format::kLlama},
                                                          {"gpt-oss", Format::kHarmony},
                                                          {"deepseekv3", Format::kDeepSeek},
                                                          {"deepseekv31", Format::kDeepSeek},
                                                          {"qwen", Format::kTagged},
                                                          {"qwen25", Format::kTagged},
                                                          {"qwen3_coder", Format::kTagged},
                                                          {"hermes", Format::kTagged},
                                                          {"glm45", Format::kGlm},
                                                          {"glm47", Format::kGlm}};

}  // namespace

std::string_view name_of(Format format) {
  for (const auto& [name, named] : kNames)
    if (named == format) return name;
  return "none";
}

std::optional<Format> format_named(std::string_view name) {
  for (const auto& [known, format] : kNames)
    if (known == name) return format;
  return std::nullopt;
}

std::vector<std::string_view> format_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, format] : kNames) names.push_back(name);
  return names;
}

std::string_view call_example(Format format) {
  switch (format) {
    case Format::kNone:
      break;
    case Format::kDeepSeek:
      return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```"
             "<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n";
    case Format::kTagged:
      return "<tool_call>\n{\"name\": \"NAME\", \"arguments\": ARGUMENTS}\n</tool_call>\n";
    case Format::kDsml:
      return "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"NAME\">\n<｜DSML｜parameter name=\"KEY\" "
             "string=\"false\">JSON</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>\n";
    case Format::kGlm:
      return "<tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>\n";
    case Format::kMistral:
      return "[TOOL_CALLS] [{\"name\": \"NAME\", \"arguments\": ARGUMENTS}]\n";
    case Format::kLlama:
      return "{\"name\": \"NAME\", \"parameters\": ARGUMENTS}\n";
    case Format::kHarmony:
      return "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>\n";
  }
  return {};
}

std::vector<Marker> markers_of(Format format) {
  switch (format) {
    case Format::kDeepSeek:
      return deepseek_markers();
    case Format::kTagged:
    case Format::kGlm:
      return tagged_markers();
    case Format::kDsml:
      return dsml_markers();
    case Format::kMistral:
      return mistral_markers();
    case Format::kLlama:
      return llama_markers();
    case Format::kHarmony:  // its markers are the reasoning's
    case Format::kNone:
      break;
  }
  return {};
}

std::unique_ptr<ToolParser> make_parser(Format format, const Json& tools) {
  switch (format) {
    case Format::kNone:
      break;
    case Format::kDeepSeek:
      return make_deepseek_parser();
    case Format::kTagged:
      return make_tagged_parser(tools, Tagged::kJsonOrFunction);
    case Format::kGlm:
      return make_tagged_parser(tools, Tagged::kGlm);
    case Format::kDsml:
      return make_dsml_parser(tools);
    case Format::kMistral:
      return make_mistral_parser();
    case Format::kLlama:
      return make_llama_parser(tools);
    case Format::kHarmony:
      return make_harmony_parser();
  }
  return std::make_unique<NoTools>();
}

}  // namespace lockstep::serving::tool_parsing
