#include "lockstep/serving/constraints/tool_forms.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/serving/constraints/schema_check.h"
#include "lockstep/serving/reasoning/harmony.h"

namespace lockstep::serving::constraints {
namespace {

using tool_parsing::Format;

// The text around the arguments. NAME stands for the function's name.
struct CallFrame {
  std::string open, prefix, suffix, separator, close;
  const char* arguments = "json";  // the library's name for how they are written
  bool repeats = true;             // several calls may follow each other
};

CallFrame frame_of(const CallStyle& style) {
  const auto prints = [&](std::string_view text) {
    return style.template_source.find(text) != std::string_view::npos;
  };
  switch (style.format) {
    case Format::kNone:
      break;
    case Format::kTagged:
      if (prints("<function="))
        return {.open = {},
                .prefix = "<tool_call>\n<function=NAME>\n",
                .suffix = "\n</function>\n</tool_call>",
                .separator = "\n",
                .close = {},
                .arguments = "qwen_xml"};
      return {.open = {},
              .prefix = "<tool_call>\n{\"name\": \"NAME\", \"arguments\": ",
              .suffix = "}\n</tool_call>",
              .separator = "\n",
              .close = {}};
    case Format::kDeepSeek: {
      CallFrame frame{.open = "<｜tool▁calls▁begin｜>",
                      .prefix = "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>",
                      .suffix = "<｜tool▁call▁end｜>",
                      .separator = {},
                      .close = "<｜tool▁calls▁end｜>"};
      if (!prints("```json")) return frame;
      frame.prefix = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n";
      frame.suffix = "\n```<｜tool▁call▁end｜>";
      frame.separator = "\n";
      return frame;
    }
    case Format::kDsml:
      return {.open = "<｜DSML｜function_calls>\n",
              .prefix = "<｜DSML｜invoke name=\"NAME\">\n",
              .suffix = "\n</｜DSML｜invoke>",
              .separator = "\n",
              .close = "\n</｜DSML｜function_calls>",
              .arguments = "deepseek_xml"};
    case Format::kGlm:
      return {.open = {},
              .prefix = "<tool_call>NAME\n",
              .suffix = "\n</tool_call>",
              .separator = "\n",
              .close = {},
              .arguments = "glm_xml"};
    case Format::kMistral:
      if (style.token_id("[ARGS]"))
        return {.open = {}, .prefix = "[TOOL_CALLS]NAME[ARGS]", .suffix = {}, .separator = {}, .close = {}};
      return {.open = "[TOOL_CALLS] [",
              .prefix = "{\"name\": \"NAME\", \"arguments\": ",
              .suffix = "}",
              .separator = ", ",
              .close = "]"};
    case Format::kLlama:
      return {.open = {},
              .prefix = "{\"name\": \"NAME\", \"parameters\": ",
              .suffix = "}",
              .separator = "; ",
              .close = {}};
    case Format::kHarmony:  // a message that is a call ends the reply
      return {.open = {},
              .prefix = "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
              .suffix = {},
              .separator = {},
              .close = {},
              .repeats = false};
  }
  return {};
}

// What begins a call and nothing else; empty where there is no such text.
std::string_view call_marker(Format format) {
  switch (format) {
    case Format::kTagged:
    case Format::kGlm:
      return "<tool_call>";
    case Format::kDeepSeek:
      return "<｜tool▁calls▁begin｜>";
    case Format::kDsml:
      return "<｜DSML｜function_calls>";
    case Format::kMistral:
      return "[TOOL_CALLS]";
    case Format::kHarmony:
      return "<|channel|>commentary to=functions.";
    case Format::kLlama:
    case Format::kNone:
      break;
  }
  return {};
}

std::vector<Marker> markers_in(Format format) {
  return format == Format::kHarmony ? reasoning::harmony_markers() : tool_parsing::markers_of(format);
}

// Adds `text` to a sequence; markers that are tokens can only be written as these.
void add_text(std::string_view text, const CallStyle& style, Json& sequence) {
  while (!text.empty()) {
    size_t first = text.size(), length = 0;
    int32_t token = -1;
    for (const Marker& marker : markers_in(style.format)) {
      const auto id = style.token_id(marker.text);
      const size_t place = text.find(marker.text);
      if (id && place < first) first = place, length = marker.text.size(), token = *id;
    }
    if (first > 0) sequence.push_back({{"type", "const_string"}, {"value", text.substr(0, first)}});
    if (length > 0) sequence.push_back({{"type", "token"}, {"token", token}});
    text.remove_prefix(first + length);
  }
}

Json sequence_of(Json elements) {
  return elements.size() == 1 ? elements[0] : Json{{"type", "sequence"}, {"elements", std::move(elements)}};
}

bool is_strict(const Json& tool) {
  const auto strict = tool["function"].find("strict");
  return strict != tool["function"].end() && *strict == true;
}

Result<Json> arguments_schema(const Json& tool, size_t tool_idx) {
  const Json any_object = {{"type", "object"}};
  const auto parameters = tool["function"].find("parameters");
  if (parameters == tool["function"].end() || parameters->is_null()) return any_object;
  auto schema = enforceable_schema(*parameters, fmt::format("tools[{}].function.parameters", tool_idx));
  if (!schema && !is_strict(tool)) schema = loosened_schema(*parameters);
  if (schema && !schema->contains("$ref") && !schema->contains("anyOf")) {
    (*schema)["type"] = "object";
    return schema;
  }
  if (!is_strict(tool)) return any_object;
  if (!schema) return schema.error();
  return invalid_argument(
      fmt::format("tools[{}].function.parameters", tool_idx),
      "'tools[{}].function.parameters' must say what the object holds, not refer to it, to be strict",
      tool_idx);
}

Result<std::vector<Json>> arguments_schemas(const Json& tools) {
  size_t num_bytes = 0;
  for (const Json& tool : tools)
    if (const auto parameters = tool["function"].find("parameters"); parameters != tool["function"].end())
      num_bytes += to_text(*parameters).size();
  if (num_bytes > kMaxSchemasBytes)
    return invalid_argument(
        "tools",
        "'tools' have {} bytes of parameters, more than the {} that calls can be held to; "
        "give fewer tools or shorter schemas",
        num_bytes, kMaxSchemasBytes);
  std::vector<Json> schemas;
  for (size_t i = 0; i < tools.size(); ++i) {
    auto schema = arguments_schema(tools[i], i);
    if (!schema) return schema.error();
    schemas.push_back(std::move(*schema));
  }
  return schemas;
}

Json one_call(const Json& tools, const std::vector<Json>& schemas, const CallStyle& style,
              const CallFrame& frame, std::string_view begun) {
  Json choices = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    std::string prefix = frame.prefix;
    prefix.replace(prefix.find("NAME"), 4, tools[i]["function"]["name"].get<std::string>());
    Json parts = Json::array();
    add_text(std::string_view(prefix).substr(begun.size()), style, parts);
    Json arguments = {{"type", "json_schema"}, {"json_schema", schemas[i]}, {"style", frame.arguments}};
    arguments["max_whitespace_cnt"] = kMaxWhitespace;
    parts.push_back(std::move(arguments));
    add_text(frame.suffix, style, parts);
    choices.push_back(sequence_of(std::move(parts)));
  }
  return choices.size() == 1 ? choices[0] : Json{{"type", "or"}, {"elements", std::move(choices)}};
}

Result<ToolForm> calls(const Json& tools, const CallStyle& style, HowMany how_many, std::string_view begun) {
  const CallFrame frame = frame_of(style);
  LOCKSTEP_CHECK(!frame.prefix.empty(), "the format {} of calls has no frame",
                 static_cast<int>(style.format));
  const bool begins_in_open = !frame.open.empty() && !begun.empty();
  const auto schemas = arguments_schemas(tools);
  if (!schemas) return schemas.error();
  Json parts = Json::array();
  add_text(std::string_view(frame.open).substr(begins_in_open ? begun.size() : 0), style, parts);
  parts.push_back(one_call(tools, *schemas, style, frame, begins_in_open ? std::string_view() : begun));
  if (frame.repeats && how_many == HowMany::kOneOrMore) {
    Json more = Json::array();
    add_text(frame.separator, style, more);
    more.push_back(one_call(tools, *schemas, style, frame, {}));
    parts.push_back({{"type", "star"}, {"content", sequence_of(std::move(more))}});
  }
  add_text(frame.close, style, parts);
  const Json structure = {{"type", "structural_tag"}, {"format", sequence_of(std::move(parts))}};
  return ToolForm{
      .form = {.kind = OutputForm::Kind::kStructure, .text = to_text(structure), .field = "tools"},
      .begin = std::string(begun)};
}

}  // namespace

Result<ToolForm> required_calls(const Json& tools, const CallStyle& style, HowMany how_many) {
  return calls(tools, style, how_many, {});
}

Result<ToolForm> calls_that_begin(const Json& tools, const CallStyle& style, HowMany how_many) {
  const std::string_view marker = call_marker(style.format);
  if (marker.empty())
    return invalid_argument(
        "tools",
        "'tools': with tool_choice \"auto\" strict cannot be enforced for this model, whose calls "
        "begin like other text; give tool_choice \"required\", or leave strict out of all {} tools",
        tools.size());
  return calls(tools, style, how_many, marker);
}

bool has_strict_tool(const Json& tools) { return std::any_of(tools.begin(), tools.end(), is_strict); }

}  // namespace lockstep::serving::constraints
