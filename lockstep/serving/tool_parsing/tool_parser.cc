#include "lockstep/serving/tool_parsing/tool_parser.h"

#include "lockstep/serving/tool_parsing/call_builder.h"
#include "lockstep/serving/tool_parsing/deepseek.h"
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

}  // namespace

std::string_view name_of(Format format) {
  switch (format) {
    case Format::kNone:
      return "none";
    case Format::kDeepSeek:
      return "deepseek";
    case Format::kTagged:
      return "tagged";
  }
  return "none";
}

std::optional<Format> format_named(std::string_view name) {
  for (const Format format : {Format::kNone, Format::kDeepSeek, Format::kTagged})
    if (name_of(format) == name) return format;
  return std::nullopt;
}

std::vector<Marker> markers_of(Format format) {
  switch (format) {
    case Format::kNone:
      return {};
    case Format::kDeepSeek:
      return deepseek_markers();
    case Format::kTagged:
      return tagged_markers();
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
      return make_tagged_parser(tools);
  }
  return std::make_unique<NoTools>();
}

}  // namespace lockstep::serving::tool_parsing
