#include "lockstep/serving/openai/messages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/serving/openai/fields.h"

namespace lockstep::serving::openai {
namespace {

// The text of a content part; complaints go to `part`.
std::string read_part(Fields& part) {
  const std::string type = part.text("type").value_or("");
  if (!part.ok()) return {};
  if (type == "text") {
    if (!part.has("text")) part.refuse("text", "is missing: a part of type \"text\" must have it");
    return part.text("text").value_or("");
  }
  if (type.empty()) {
    part.refuse("type", "is missing: give {\"type\": \"text\", \"text\": ...}");
  } else if (type == "image_url" || type == "input_audio" || type == "file" || type == "video_url") {
    part.refuse("type", fmt::format("is \"{}\": this model reads text only; leave the part out", type));
  } else {
    part.refuse("type", fmt::format("is \"{}\", which is unknown; it must be \"text\"", type));
  }
  return {};
}

// The content as text, or null.
Json read_content(Fields& message) {
  const Json* content = message.find("content");
  if (content == nullptr || content->is_string()) return content == nullptr ? Json() : *content;
  if (!content->is_array()) {
    message.refuse("content",
                   fmt::format("must be a string or an array of parts, not {}", kind_of(*content)));
    return {};
  }
  std::string joined;
  for (size_t i = 0; i < content->size() && message.ok(); ++i) {
    Fields part((*content)[i], fmt::format("{}[{}]", message.path_of("content"), i));
    joined += read_part(part);
    if (!part.ok()) message.complain(part.status().error());
  }
  return joined;
}

Json read_arguments(Fields& function) {
  const Json* arguments = function.find("arguments");
  if (arguments == nullptr) return Json::object();
  if (!arguments->is_object() && !arguments->is_string())
    function.refuse("arguments",
                    fmt::format("must be a string that holds JSON, not {}", kind_of(*arguments)));
  return *arguments;
}

Json read_tool_call(Fields& call) {
  const std::string type = call.text("type").value_or("function");
  if (type != "function") call.refuse("type", fmt::format("is \"{}\"; it must be \"function\"", type));
  Json out = {{"type", "function"}};
  if (const auto id = call.text("id")) out["id"] = *id;
  const Json* declared = call.object("function");
  if (declared == nullptr) {
    call.refuse("function", "is missing");
    return out;
  }
  Fields function(*declared, call.path_of("function"));
  const std::string name = function.text("name").value_or("");
  if (name.empty()) function.refuse("name", "is missing or empty");
  out["function"] = {{"name", name}, {"arguments", read_arguments(function)}};
  if (!function.ok()) call.complain(function.status().error());
  return out;
}

void read_tool_calls(Fields& message, Json& out) {
  const Json* calls = message.array("tool_calls");
  if (calls == nullptr || calls->empty()) return;
  if (calls->size() > kMaxToolCalls)
    return message.refuse(
        "tool_calls", fmt::format("holds {} calls; at most {} are allowed", calls->size(), kMaxToolCalls));
  Json read = Json::array();
  for (size_t i = 0; i < calls->size() && message.ok(); ++i) {
    Fields call((*calls)[i], fmt::format("{}[{}]", message.path_of("tool_calls"), i));
    read.push_back(read_tool_call(call));
    if (!call.ok()) message.complain(call.status().error());
  }
  out["tool_calls"] = std::move(read);
}

Json read_message(Fields& message) {
  std::string role = message.text("role").value_or("");
  if (!message.ok()) return {};
  if (role.empty()) return message.refuse("role", "is missing"), Json();
  static constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
    message.refuse("role",
                   fmt::format("is \"{}\"; it must be system, developer, user, assistant or tool", role));
    return {};
  }
  if (role == "developer") role = "system";
  Json out = {{"role", role}, {"content", read_content(message)}};
  if (const auto name = message.text("name")) out["name"] = *name;
  if (role == "assistant") {
    read_tool_calls(message, out);
    auto reasoning = message.text("reasoning_content");
    if (!reasoning) reasoning = message.text("reasoning");
    if (reasoning) out["reasoning_content"] = *reasoning;
    if (message.has("function_call"))
      message.refuse("function_call", "is no longer supported; give tool_calls");
    if (out["content"].is_null() && !out.contains("tool_calls") && !reasoning)
      message.refuse("content", "is missing: an assistant message without tool_calls must have it");
  } else if (out["content"].is_null()) {
    message.refuse("content", fmt::format("is missing: a message of role {} must have it", role));
  }
  if (role == "tool") {
    const auto id = message.text("tool_call_id");
    if (!id) message.refuse("tool_call_id", "is missing: it must name the call that this message answers");
    out["tool_call_id"] = id.value_or("");
  }
  return out;
}

// Sorts the results that follow the message at `assistant` by the calls in it. What answers no call stays at
// the end.
void order_results(Json& messages, size_t assistant) {
  size_t end = assistant + 1;
  while (end < messages.size() && messages[end]["role"] == "tool") ++end;
  if (end - assistant < 3) return;
  const Json calls = messages[assistant]["tool_calls"];
  const auto place = [&](const Json& result) {
    size_t call = 0;
    while (call < calls.size() && Json(calls[call].value("id", "")) != result["tool_call_id"]) ++call;
    return call;
  };
  const auto first = messages.begin() + static_cast<Json::difference_type>(assistant + 1);
  std::stable_sort(first, messages.begin() + static_cast<Json::difference_type>(end),
                   [&](const Json& a, const Json& b) { return place(a) < place(b); });
}

}  // namespace

Result<Json> read_messages(const Json& messages) {
  if (!messages.is_array())
    return invalid_argument("messages", "'messages' must be an array, not {}", kind_of(messages));
  if (messages.empty()) return invalid_argument("messages", "'messages' must hold at least one message");
  if (messages.size() > kMaxMessages)
    return invalid_argument("messages", "'messages' holds {} messages, more than the limit of {}",
                            messages.size(), kMaxMessages);
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Fields message(messages[i], fmt::format("messages[{}]", i));
    Json read = read_message(message);
    if (!message.ok()) return message.status().error();
    out.push_back(std::move(read));
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].contains("tool_calls")) order_results(out, i);
  return out;
}

}  // namespace lockstep::serving::openai
