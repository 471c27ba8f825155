#include "lockstep/serving/openai/tools.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

namespace lockstep::serving::openai {
namespace {

constexpr size_t kMaxNameBytes = 64;

bool is_function_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

void check_parameters(Fields& function) {
  const Json* parameters = function.object("parameters");
  if (parameters == nullptr) return;
  Fields schema(*parameters, function.path_of("parameters"));
  if (const Json* type = schema.find("type"); type != nullptr && *type != "object")
    schema.refuse("type", "must be \"object\": the parameters of a function are a JSON schema of an object");
  if (const Json* properties = schema.object("properties")) {
    for (const auto& [name, property] : properties->items())
      if (!property.is_object() && !property.is_boolean())
        schema.refuse("properties." + name, fmt::format("must be a JSON schema, not {}", kind_of(property)));
  }
  if (const Json* required = schema.array("required")) {
    for (size_t i = 0; i < required->size(); ++i)
      if (!(*required)[i].is_string())
        schema.refuse(fmt::format("required[{}]", i),
                      fmt::format("must be a string, not {}", kind_of((*required)[i])));
  }
  if (!schema.ok()) function.complain(schema.status().error());
}

// The function's name; complaints go to `tool`.
std::string check_tool(Fields& tool) {
  const auto type = tool.text("type");
  if (!type && tool.ok()) tool.refuse("type", "is missing; it must be \"function\"");
  if (type && *type != "function")
    tool.refuse("type", fmt::format("is \"{}\"; only \"function\" is supported", *type));
  const Json* declared = tool.object("function");
  if (declared == nullptr) {
    tool.refuse("function", "is missing");
    return {};
  }
  Fields function(*declared, tool.path_of("function"));
  const auto name = function.text("name");
  if (!name && function.ok()) function.refuse("name", "is missing");
  if (name && !is_function_name(*name))
    function.refuse("name",
                    fmt::format("must be 1 to {} letters, digits, underscores or dashes", kMaxNameBytes));
  function.text("description");
  function.flag("strict");
  check_parameters(function);
  if (!function.ok()) tool.complain(function.status().error());
  return name.value_or("");
}

const Json* find_tool(const Json& tools, const std::string& name) {
  for (const Json& tool : tools)
    if (tool["function"]["name"] == name) return &tool;
  return nullptr;
}

// The tool that {"type": "function", "function": {"name"}} names; null when it is wrong, which goes to
// `choice`.
const Json* read_named(Fields& choice, const Json& tools) {
  const Json* function = choice.object("function");
  std::optional<std::string> name;
  if (function != nullptr) {
    Fields inner(*function, choice.path_of("function"));
    name = inner.text("name");
    if (!inner.ok()) choice.complain(inner.status().error());
  }
  if (!name && choice.ok()) choice.refuse("function.name", "is missing");
  const Json* tool = name ? find_tool(tools, *name) : nullptr;
  if (name && tool == nullptr)
    choice.refuse("function.name",
                  fmt::format("is \"{}\", which is none of the {} tools", *name, tools.size()));
  return tool;
}

void read_allowed(Fields& choice, const Json& tools, ToolOptions& options) {
  const Json* declared = choice.object("allowed_tools");
  if (declared == nullptr) return choice.refuse("allowed_tools", "is missing");
  Fields allowed(*declared, choice.path_of("allowed_tools"));
  const auto mode = allowed.text("mode");
  if (allowed.ok() && mode != "auto" && mode != "required")
    allowed.refuse("mode", "must be \"auto\" or \"required\"");
  const Json* names = allowed.array("tools");
  if (allowed.ok() && (names == nullptr || names->empty()))
    allowed.refuse("tools", "must hold one tool or more");
  for (size_t i = 0; names != nullptr && i < names->size() && allowed.ok(); ++i) {
    Fields entry((*names)[i], fmt::format("{}[{}]", allowed.path_of("tools"), i));
    if (const Json* tool = read_named(entry, tools)) options.callable.push_back(*tool);
    if (!entry.ok()) allowed.complain(entry.status().error());
  }
  if (!allowed.ok()) return choice.complain(allowed.status().error());
  if (mode == "required") options.demand = ToolOptions::Demand::kMustCall;
}

// What may and what must be called; `tools` were checked. Complaints go to `fields`.
void read_choice(Fields& fields, const Json& tools, ToolOptions& options) {
  const Json* value = fields.find("tool_choice");
  if (value == nullptr || *value == "auto" || *value == "none") {
    if (value == nullptr || *value == "auto") options.tools = tools;
    return;
  }
  if (!value->is_object() && *value != "required")
    return fields.refuse("tool_choice",
                         "must be \"none\", \"auto\", \"required\" or an object that names a function");
  if (tools.is_null()) return fields.refuse("tool_choice", "may be given only together with 'tools'");
  options.tools = tools;
  options.demand = ToolOptions::Demand::kMustCall;
  if (*value == "required") return;
  Fields choice(*value, "tool_choice");
  const auto type = choice.text("type");
  if (type == "function") {
    if (const Json* tool = read_named(choice, tools)) options.callable = Json::array({*tool});
    options.one_call_at_most = true;
  } else if (type == "allowed_tools") {
    options.demand = ToolOptions::Demand::kMayCall;
    read_allowed(choice, tools, options);
  } else if (choice.ok()) {
    choice.refuse("type", "must be \"function\" or \"allowed_tools\"");
  }
  if (!choice.ok()) fields.complain(choice.status().error());
}

}  // namespace

ToolOptions read_tools(Fields& fields) {
  ToolOptions options;
  if (fields.has("functions")) fields.refuse("functions", "is no longer supported; give tools");
  if (fields.has("function_call")) fields.refuse("function_call", "is no longer supported; give tool_choice");
  const Json* tools = fields.array("tools");
  if (tools != nullptr && tools->size() > kMaxTools)
    fields.refuse("tools",
                  fmt::format("holds {} tools, more than the limit of {}", tools->size(), kMaxTools));
  std::set<std::string> names;
  for (size_t i = 0; tools != nullptr && i < tools->size() && fields.ok(); ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}]", i));
    const std::string name = check_tool(tool);
    if (tool.ok() && !names.insert(name).second)
      tool.refuse("function.name", fmt::format("is \"{}\", which another tool has already", name));
    if (!tool.ok()) fields.complain(tool.status().error());
  }
  const bool has_tools = tools != nullptr && !tools->empty();
  options.one_call_at_most = !fields.flag("parallel_tool_calls").value_or(true);
  if (fields.ok()) read_choice(fields, has_tools ? *tools : Json(), options);
  return options;
}

}  // namespace lockstep::serving::openai
