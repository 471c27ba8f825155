#include "lockstep/serving/anthropic/message_request.h"

#include <string>
#include <utility>

#include "lockstep/serving/openai/messages.h"

namespace lockstep::serving::anthropic {
namespace {

using openai::FieldName;
using openai::Fields;
using openai::kind_of;

constexpr std::string_view kBetweenBlocks = "\n";

constexpr const char* kSame[] = {"model", "temperature", "top_p", "top_k", "stream"};
constexpr FieldName kNames[] = {{"max_completion_tokens", "max_tokens"},
                                {"stop", "stop_sequences"},
                                {"response_format.json_schema.schema", "output_config.format.schema"},
                                {"response_format", "output_config.format"},
                                {"reasoning_effort", "output_config.effort"},
                                {"tool_choice.function", "tool_choice"}};

void append(std::string& text, const std::string& block) {
  if (!text.empty()) text += kBetweenBlocks;
  text += block;
}

std::string needed_text(Fields& block, std::string_view key) {
  const auto text = block.text(key);
  if (block.ok() && !text) block.refuse(key, "is missing");
  return text.value_or("");
}

void refuse_block(Fields& block, const std::string& type) {
  block.refuse("type", type.empty() ? std::string("is missing")
                                    : fmt::format("is \"{}\", which this server does not read here: the "
                                                  "model takes text and the calls of tools",
                                                  type));
}

// A text, or a list of text blocks.
std::string read_text(Fields& fields, std::string_view key) {
  const Json* value = fields.find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) {
    fields.refuse(key, fmt::format("must be text or an array of blocks, not {}", kind_of(*value)));
    return {};
  }
  std::string joined;
  for (size_t i = 0; i < value->size() && fields.ok(); ++i) {
    Fields block((*value)[i], fmt::format("{}[{}]", fields.path_of(key), i));
    const std::string type = block.text("type").value_or("");
    if (type != "text") refuse_block(block, type);
    append(joined, needed_text(block, "text"));
    if (!block.ok()) fields.complain(block.status().error());
  }
  return joined;
}

// One message of a client becomes one or several of a chat: results of tools are messages of their own.
class Turn {
 public:
  explicit Turn(Json& messages) : messages_(messages) {}

  void read(Fields& message) {
    const std::string role = message.text("role").value_or("");
    if (message.ok() && role != "user" && role != "assistant" && role != "system")
      message.refuse("role", role.empty() ? std::string("is missing")
                                          : fmt::format("is \"{}\"; it must be user or assistant", role));
    if (message.ok() && !message.has("content")) message.refuse("content", "is missing");
    if (!message.ok()) return;
    const Json& content = *message.find("content");
    if (!content.is_array() || role == "system") {
      text_ = read_text(message, "content");
    } else {
      for (size_t i = 0; i < content.size() && message.ok(); ++i) {
        Fields block(content[i], fmt::format("{}[{}]", message.path_of("content"), i));
        role == "user" ? read_users(block) : read_assistants(block);
        if (!block.ok()) message.complain(block.status().error());
      }
    }
    if (role == "assistant") return add_assistant();
    if (!text_.empty() || num_results_ == 0) messages_.push_back({{"role", role}, {"content", text_}});
  }

 private:
  void read_users(Fields& block) {
    const std::string type = block.text("type").value_or("");
    if (type == "text") return append(text_, needed_text(block, "text"));
    if (type != "tool_result") return refuse_block(block, type);
    const std::string id = needed_text(block, "tool_use_id");
    block.flag("is_error");
    ++num_results_;
    messages_.push_back({{"role", "tool"}, {"content", read_text(block, "content")}, {"tool_call_id", id}});
  }

  void read_assistants(Fields& block) {
    const std::string type = block.text("type").value_or("");
    if (type == "text") return append(text_, needed_text(block, "text"));
    if (type == "thinking") return append(thinking_, needed_text(block, "thinking"));
    if (type == "redacted_thinking") return;  // encrypted by another server, for itself
    if (type != "tool_use") return refuse_block(block, type);
    const std::string id = needed_text(block, "id"), name = needed_text(block, "name");
    const Json* input = block.object("input");
    if (block.ok() && name.empty()) block.refuse("name", "is empty");
    if (block.ok() && input == nullptr) block.refuse("input", "is missing");
    if (calls_.size() >= openai::kMaxToolCalls)
      block.refuse("type", fmt::format("is one call more than the {} of a turn", openai::kMaxToolCalls));
    if (!block.ok()) return;
    calls_.push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", *input}}}});
  }

  void add_assistant() {
    Json message = {{"role", "assistant"}, {"content", text_}};
    if (!thinking_.empty()) message["reasoning_content"] = thinking_;
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    messages_.push_back(std::move(message));
  }

  Json& messages_;
  std::string text_, thinking_;
  Json calls_ = Json::array();
  int num_results_ = 0;
};

Json read_messages(Fields& fields) {
  Json out = Json::array();
  const Json* messages = fields.array("messages");
  if (fields.ok() && (messages == nullptr || messages->empty()))
    fields.refuse("messages", "must hold at least one message");
  if (messages != nullptr && messages->size() > openai::kMaxMessages)
    fields.refuse("messages", fmt::format("holds {} messages, more than the limit of {}", messages->size(),
                                          openai::kMaxMessages));
  if (const std::string system = read_text(fields, "system"); !system.empty())
    out.push_back({{"role", "system"}, {"content", system}});
  for (size_t i = 0; fields.ok() && i < messages->size(); ++i) {
    Fields message((*messages)[i], fmt::format("messages[{}]", i));
    Turn(out).read(message);
    if (message.ok() && i + 1 == messages->size() && out.back()["role"] == "assistant")
      message.refuse("role",
                     "is \"assistant\" in the last message: answers that begin with given text are not "
                     "supported; end with a message of the user");
    if (!message.ok()) fields.complain(message.status().error());
  }
  return out;
}

void read_tools(Fields& fields, Json& chat) {
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return;
  chat["tools"] = Json::array();
  for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}]", i));
    if (const auto type = tool.text("type"); type && *type != "custom")
      tool.refuse("type", fmt::format("is \"{}\": this server has no tools of its own", *type));
    const Json* schema = tool.object("input_schema");
    if (tool.ok() && schema == nullptr) tool.refuse("input_schema", "is missing");
    if (!tool.ok()) return fields.complain(tool.status().error());
    Json function = {{"name", tool.find("name") == nullptr ? Json() : *tool.find("name")}};
    for (const char* key : {"description", "strict"})
      if (const Json* value = tool.find(key)) function[key] = *value;
    function["parameters"] = *schema;
    chat["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
  }
}

void read_tool_choice(Fields& fields, Json& chat) {
  const Json* declared = fields.object("tool_choice");
  if (declared == nullptr) return;
  Fields choice(*declared, "tool_choice");
  const std::string type = choice.text("type").value_or("");
  if (choice.flag("disable_parallel_tool_use").value_or(false)) chat["parallel_tool_calls"] = false;
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", needed_text(choice, "name")}}}};
  } else {
    choice.refuse("type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
  }
  if (!choice.ok()) fields.complain(choice.status().error());
}

// Templates know on and off; how much is the model's.
void read_thinking(Fields& fields, Json& chat) {
  const Json* declared = fields.object("thinking");
  if (declared == nullptr) return;
  Fields thinking(*declared, "thinking");
  const std::string type = thinking.text("type").value_or("");
  thinking.integer("budget_tokens", 1, int64_t{1} << 31);
  if (type == "enabled" || type == "disabled") {
    const bool is_on = type == "enabled";
    chat["chat_template_kwargs"] = {{"enable_thinking", is_on}, {"thinking", is_on}};
  } else if (type != "adaptive" && thinking.ok()) {
    thinking.refuse("type", "must be \"enabled\", \"disabled\" or \"adaptive\"");
  }
  if (!thinking.ok()) fields.complain(thinking.status().error());
}

void read_output_config(Fields& fields, Json& chat) {
  const Json* declared = fields.object("output_config");
  if (declared == nullptr) return;
  Fields config(*declared, "output_config");
  if (const Json* effort = config.find("effort")) chat["reasoning_effort"] = *effort;
  if (const Json* format = config.object("format")) {
    chat["response_format"] = {{"type", format->value("type", Json())}};
    if (chat["response_format"]["type"] == "json_schema")
      chat["response_format"]["json_schema"] = {{"schema", format->value("schema", Json())}};
  }
  if (!config.ok()) fields.complain(config.status().error());
}

// "tools[0].function.parameters.x" is "tools[0].input_schema.x" here, and so on.
Error in_clients_words(Error error) {
  for (const auto& [nested, own] :
       {std::pair<std::string_view, std::string_view>(".function.parameters", ".input_schema"),
        {".function", ""}}) {
    const size_t at = error.field.find(nested);
    if (at == std::string::npos || !error.field.starts_with("tools[")) continue;
    const std::string from = error.field;
    std::string to = error.field;
    to.replace(at, nested.size(), own);
    const FieldName name{from, to};
    return openai::renamed(std::move(error), {&name, 1});
  }
  return openai::renamed(std::move(error), kNames);
}

}  // namespace

Result<openai::ChatRequest> read_message_request(const Json& body, Purpose purpose,
                                                 const runtime::ModelInfo& model) {
  Fields fields(body);
  Json chat = Json::object();
  for (const char* key : kSame)
    if (const Json* value = fields.find(key)) chat[key] = *value;
  if (fields.ok() && !fields.has("max_tokens") && purpose == Purpose::kAnswer)
    fields.refuse("max_tokens", "is missing");
  for (const char* key : {"container", "mcp_servers", "context_management"})
    if (fields.has(key)) fields.refuse(key, "is not supported: this server runs no tools of its own");
  chat["messages"] = read_messages(fields);
  read_tools(fields, chat);
  read_tool_choice(fields, chat);
  read_thinking(fields, chat);
  read_output_config(fields, chat);
  if (const Json* stop = fields.array("stop_sequences")) chat["stop"] = *stop;
  if (const Json* limit = fields.find("max_tokens")) chat["max_completion_tokens"] = *limit;
  fields.object("metadata");
  fields.text("service_tier");
  if (!fields.ok()) return fields.status().error();
  auto read = openai::read_chat_request(chat, model);
  if (!read) return in_clients_words(read.error());
  return read;
}

}  // namespace lockstep::serving::anthropic
