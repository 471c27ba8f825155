#include "lockstep/serving/openai/responses_request.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "lockstep/serving/openai/responses_items.h"

namespace lockstep::serving::openai {
namespace {

// Fields that mean the same in a chat.
constexpr const char* kSame[] = {"model",
                                 "temperature",
                                 "top_p",
                                 "parallel_tool_calls",
                                 "metadata",
                                 "user",
                                 "stream",
                                 "seed",
                                 "stop",
                                 "stop_token_ids",
                                 "top_k",
                                 "min_p",
                                 "logit_bias",
                                 "min_tokens",
                                 "ignore_eos",
                                 "priority",
                                 "repetition_penalty",
                                 "presence_penalty",
                                 "frequency_penalty",
                                 "regex",
                                 "ebnf",
                                 "chat_template_kwargs",
                                 "guided_json",
                                 "guided_regex",
                                 "guided_grammar",
                                 "guided_choice",
                                 "structured_outputs"};

constexpr FieldName kNames[] = {{"max_completion_tokens", "max_output_tokens"},
                                {"response_format.json_schema", "text.format"},
                                {"response_format", "text.format"},
                                {"reasoning_effort", "reasoning.effort"},
                                {"tool_choice.function", "tool_choice"},
                                {"messages", "input"}};

// What a server with tools and images of its own adds to its answers: there is nothing of it here.
constexpr std::string_view kIncludable[] = {"message.output_text.logprobs",
                                            "reasoning.encrypted_content",
                                            "file_search_call.results",
                                            "web_search_call.results",
                                            "web_search_call.action.sources",
                                            "message.input_image.image_url",
                                            "computer_call_output.output.image_url",
                                            "code_interpreter_call.outputs"};

void refuse_what_is_not_here(Fields& fields) {
  if (fields.flag("background").value_or(false))
    fields.refuse("background", "is not supported: ask for a stream instead");
  for (const char* key : {"conversation", "prompt"})
    if (fields.has(key)) fields.refuse(key, "is not supported; give the items in 'input'");
  if (const auto truncation = fields.text("truncation"); truncation && *truncation != "disabled")
    fields.refuse("truncation", "must be \"disabled\": nothing is left out of a conversation here");
  if (fields.integer("n", 1, 128).value_or(1) != 1) fields.refuse("n", "must be 1: a response is one");
}

// {"type": "function", "name", ...} as a chat writes it.
Json chat_tool(const Json& tool) {
  if (!tool.is_object() || tool.value("type", Json()) != "function") return tool;
  Json function = Json::object();
  for (const char* key : {"name", "description", "parameters", "strict"})
    if (const auto found = tool.find(key); found != tool.end() && !found->is_null()) function[key] = *found;
  return {{"type", "function"}, {"function", std::move(function)}};
}

Json chat_tools(const Json& tools) {
  Json out = Json::array();
  for (const Json& tool : tools) out.push_back(chat_tool(tool));
  return out;
}

Json chat_tool_choice(Fields& fields) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || !choice->is_object()) return choice == nullptr ? Json() : *choice;
  const Json type = choice->value("type", Json());
  if (type == "function") return chat_tool(*choice);
  if (type != "allowed_tools") return *choice;
  Json allowed = {{"mode", choice->value("mode", Json())}, {"tools", choice->value("tools", Json())}};
  if (allowed["tools"].is_array()) allowed["tools"] = chat_tools(allowed["tools"]);
  return {{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
}

// {"type": "json_schema", "name", "schema", ...} as a chat writes it.
void read_text_format(Fields& fields, Json& chat) {
  const Json* text = fields.object("text");
  if (text == nullptr) return;
  Fields inner(*text, "text");
  if (const Json* format = inner.object("format")) {
    Json schema = *format;
    schema.erase("type");
    chat["response_format"] = {{"type", format->value("type", Json())}};
    if (chat["response_format"]["type"] == "json_schema")
      chat["response_format"]["json_schema"] = std::move(schema);
  }
  if (const auto verbosity = inner.text("verbosity"); verbosity && *verbosity != "medium")
    inner.refuse("verbosity", "must be \"medium\": say in 'instructions' how long answers shall be");
  if (!inner.ok()) fields.complain(inner.status().error());
}

void read_reasoning(Fields& fields, Json& chat) {
  const Json* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  Fields inner(*reasoning, "reasoning");
  if (const auto effort = inner.text("effort")) chat["reasoning_effort"] = *effort;
  for (const char* key : {"summary", "generate_summary"}) inner.text(key);
  if (!inner.ok()) fields.complain(inner.status().error());
}

void read_logprobs(Fields& fields, Json& chat) {
  const auto top = fields.integer("top_logprobs", 0, 20);
  if (const Json* include = fields.array("include")) {
    for (size_t i = 0; i < include->size(); ++i) {
      const Json& one = (*include)[i];
      const auto is_same = [&](std::string_view name) { return one == name; };
      if (std::none_of(std::begin(kIncludable), std::end(kIncludable), is_same))
        return fields.refuse(fmt::format("include[{}]", i), "names nothing that a response may include");
      if (one == kIncludable[0]) chat["logprobs"] = true;
    }
  }
  if (top && *top > 0) chat["logprobs"] = true;
  if (top && chat.contains("logprobs")) chat["top_logprobs"] = *top;
}

Json read_input(Fields& fields) {
  const Json* input = fields.find("input");
  if (input == nullptr) {
    fields.refuse("input", "is missing");
  } else if (input->is_string()) {
    return Json::array({{{"type", "message"}, {"role", "user"}, {"content", *input}}});
  } else if (!input->is_array()) {
    fields.refuse("input", fmt::format("must be text or an array of items, not {}", kind_of(*input)));
  } else {
    return *input;
  }
  return Json::array();
}

// The messages of the whole conversation; complaints go to `fields`.
Json read_messages(Fields& fields, const Json& earlier, const Json& input, std::string& kept) {
  auto read = read_items(earlier, input, "input");
  if (!read) {
    fields.complain(read.error());
    return {};
  }
  kept = to_text(read->kept);
  Json& messages = read->messages;
  if (const auto instructions = fields.text("instructions"); instructions && !instructions->empty())
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *instructions}});
  if (messages.empty()) fields.refuse("input", "must hold at least one item");
  return std::move(messages);
}

// What a response repeats word for word, read here or not, it also keeps.
void check_shown(Fields& fields) {
  constexpr size_t kMaxShownBytes = size_t{1} << 20;
  for (const char* key : {"tools", "tool_choice", "text", "reasoning"}) {
    const Json* value = fields.find(key);
    const size_t size = value == nullptr ? 0 : to_text(*value).size();
    if (size > kMaxShownBytes)
      fields.refuse(key, fmt::format("has {} bytes, more than the limit of {}", size, kMaxShownBytes));
  }
  for (const char* key : {"prompt_cache_key", "safety_identifier", "service_tier"}) read_name(fields, key);
}

double shown_number(float value) { return std::round(static_cast<double>(value) * 1e6) / 1e6; }

Json shown_fields(const Json& body, const ChatRequest& chat) {
  const auto given = [&](const char* key, Json otherwise) {
    const auto found = body.find(key);
    return found == body.end() || found->is_null() ? std::move(otherwise) : *found;
  };
  Json shown = {{"instructions", given("instructions", nullptr)},
                {"max_output_tokens", given("max_output_tokens", nullptr)},
                {"max_tool_calls", given("max_tool_calls", nullptr)},
                {"metadata", given("metadata", Json::object())},
                {"parallel_tool_calls", given("parallel_tool_calls", true)},
                {"previous_response_id", given("previous_response_id", nullptr)},
                {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                {"store", given("store", true)},
                {"temperature", shown_number(chat.options.sampling.temperature)},
                {"text", given("text", Json::object())},
                {"tool_choice", given("tool_choice", "auto")},
                {"tools", given("tools", Json::array())},
                {"top_logprobs", given("top_logprobs", 0)},
                {"top_p", shown_number(chat.options.sampling.top_p)},
                {"truncation", "disabled"},
                {"user", given("user", nullptr)},
                {"prompt_cache_key", given("prompt_cache_key", nullptr)},
                {"safety_identifier", given("safety_identifier", nullptr)},
                {"service_tier", "default"},
                {"background", false}};
  if (const auto reasoning = body.find("reasoning"); reasoning != body.end() && reasoning->is_object())
    shown["reasoning"].update(*reasoning);
  if (!shown["text"].contains("format") || shown["text"]["format"].is_null())
    shown["text"]["format"] = {{"type", "text"}};
  return shown;
}

// "tools[0].function.name" is "tools[0].name" here.
Error in_clients_words(Error error) {
  constexpr std::string_view kNested = ".function";
  const size_t at = error.field.find(kNested);
  if (at != std::string::npos && error.field.starts_with("tools[")) {
    const std::string from = error.field;
    std::string to = error.field;
    to.erase(at, kNested.size());
    const FieldName name{from, to};
    return renamed(std::move(error), {&name, 1});
  }
  return renamed(std::move(error), kNames);
}

}  // namespace

Result<std::optional<std::string>> previous_response(const Json& body) {
  Fields fields(body);
  auto id = fields.text("previous_response_id");
  if (!fields.ok()) return fields.status().error();
  return id;
}

Result<ResponsesRequest> read_responses_request(const Json& body, const Json& earlier,
                                                const runtime::ModelInfo& model) {
  ResponsesRequest request;
  Fields fields(body);
  Json chat = Json::object();
  if (fields.ok())
    for (const char* key : kSame)
      if (const Json* value = fields.find(key)) chat[key] = *value;
  refuse_what_is_not_here(fields);
  const Json input = read_input(fields);
  check_shown(fields);
  chat["messages"] = fields.ok() ? read_messages(fields, earlier, input, request.items) : Json::array();
  if (const Json* tools = fields.array("tools")) chat["tools"] = chat_tools(*tools);
  chat["tool_choice"] = chat_tool_choice(fields);
  read_text_format(fields, chat);
  read_reasoning(fields, chat);
  read_logprobs(fields, chat);
  fields.object("stream_options");
  fields.integer("max_tool_calls", 1, 1 << 30);
  if (const Json* limit = fields.find("max_output_tokens")) chat["max_completion_tokens"] = *limit;
  request.store = fields.flag("store").value_or(true);
  if (!fields.ok()) return fields.status().error();
  auto read = read_chat_request(chat, model);
  if (!read) return in_clients_words(read.error());
  request.chat = std::move(*read);
  request.shown = shown_fields(body, request.chat);
  return request;
}

}  // namespace lockstep::serving::openai
