#include "lockstep/serving/openai/tools.h"

#include <algorithm>
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

// True when the model may call; complaints go to `fields`.
bool may_call(Fields& fields, bool has_tools) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto" || *choice == "none")
    return choice == nullptr || *choice == "auto";
  if (choice->is_object() || *choice == "required") {
    if (!has_tools) {
      fields.refuse("tool_choice", "may be given only together with 'tools'");
    } else {
      fields.refuse(
          "tool_choice",
          "cannot be honoured: a call cannot be forced yet; give \"auto\" and ask for the call in a message");
    }
  } else {
    fields.refuse("tool_choice",
                  "must be \"none\", \"auto\", \"required\" or an object that names a function");
  }
  return false;
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
  if (may_call(fields, has_tools) && has_tools) options.tools = *tools;
  return options;
}

}  // namespace lockstep::serving::openai
