#include "lockstep/serving/openai/responses_items.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "lockstep/serving/openai/fields.h"
#include "lockstep/serving/openai/messages.h"

namespace lockstep::serving::openai {
namespace {

constexpr std::string_view kTextParts[] = {"input_text", "output_text", "text", "summary_text",
                                           "reasoning_text"};

// The text of one part of a list; complaints go to `part`.
std::string read_part(Fields& part) {
  const std::string type = part.text("type").value_or("");
  if (!part.ok()) return {};
  if (type == "refusal") return part.text("refusal").value_or("");
  if (std::find(std::begin(kTextParts), std::end(kTextParts), type) != std::end(kTextParts)) {
    if (!part.has("text")) part.refuse("text", fmt::format("is missing: a part of type \"{}\" has it", type));
    return part.text("text").value_or("");
  }
  part.refuse("type", type.empty() ? std::string("is missing")
                                   : fmt::format("is \"{}\": this model reads text only", type));
  return {};
}

// Text, or a list of parts joined; complaints go to `item`.
std::string read_text(Fields& item, std::string_view key) {
  const Json* value = item.find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) {
    item.refuse(key, fmt::format("must be text or an array of parts, not {}", kind_of(*value)));
    return {};
  }
  std::string joined;
  for (size_t i = 0; i < value->size() && item.ok(); ++i) {
    Fields part((*value)[i], fmt::format("{}[{}]", item.path_of(key), i));
    joined += read_part(part);
    if (!part.ok()) item.complain(part.status().error());
  }
  return joined;
}

std::string needed_text(Fields& item, std::string_view key) {
  const auto text = item.text(key);
  if (item.ok() && (!text || text->empty())) item.refuse(key, "is missing or empty");
  return text.value_or("");
}

class Conversation {
 public:
  void add(Fields& item) {
    const std::string type = item.text("type").value_or(item.has("role") ? "message" : "");
    if (!item.ok()) return;
    if (type == "message") return add_message(item);
    if (type == "function_call") return add_call(item);
    if (type == "function_call_output") return add_output(item);
    if (type == "reasoning") return add_reasoning(item);
    if (type == "item_reference")
      return item.refuse("type",
                         "is \"item_reference\": give the item itself, or 'previous_response_id' beside "
                         "'input'");
    item.refuse("type", type.empty() ? std::string("is missing")
                                     : fmt::format("is \"{}\"; this server takes message, function_call, "
                                                   "function_call_output and reasoning",
                                                   type));
  }

  ReadItems take() {
    end_turn();
    return {std::move(messages_), std::move(kept_)};
  }

 private:
  // The assistant's turn: reasoning, then text, then calls.
  enum class Part : unsigned char { kNone, kReasoning, kText, kCalls };

  // The message of the turn that may still hold `part`.
  Json& turn(Part part) {
    if (last_ >= part && !(last_ == Part::kCalls && part == Part::kCalls)) end_turn();
    if (last_ == Part::kNone) turn_ = {{"role", "assistant"}, {"content", nullptr}};
    last_ = part;
    return turn_;
  }

  void end_turn() {
    if (last_ == Part::kReasoning) turn_["content"] = "";
    if (last_ != Part::kNone) messages_.push_back(std::move(turn_));
    last_ = Part::kNone;
  }

  void add_message(Fields& item) {
    const std::string role = item.text("role").value_or("");
    if (item.ok() && role != "user" && role != "system" && role != "developer" && role != "assistant")
      item.refuse("role", role.empty() ? std::string("is missing")
                                       : fmt::format("is \"{}\"; it must be user, system, developer or "
                                                     "assistant",
                                                     role));
    if (item.ok() && !item.has("content")) item.refuse("content", "is missing");
    std::string content = read_text(item, "content");
    kept_.push_back({{"type", "message"}, {"role", role}, {"content", content}});
    if (role == "assistant") {
      turn(Part::kText)["content"] = std::move(content);
      return;
    }
    end_turn();
    messages_.push_back({{"role", role}, {"content", std::move(content)}});
  }

  void add_call(Fields& item) {
    Json call = {{"id", needed_text(item, "call_id")}, {"type", "function"}};
    call["function"] = {{"name", needed_text(item, "name")},
                        {"arguments", item.text("arguments").value_or("{}")}};
    kept_.push_back({{"type", "function_call"},
                     {"call_id", call["id"]},
                     {"name", call["function"]["name"]},
                     {"arguments", call["function"]["arguments"]}});
    Json& calls = turn(Part::kCalls)["tool_calls"];
    if (calls.size() >= kMaxToolCalls)
      return item.refuse("type",
                         fmt::format("is one call more than the {} that a turn may hold", kMaxToolCalls));
    calls.push_back(std::move(call));
  }

  void add_output(Fields& item) {
    const std::string id = needed_text(item, "call_id");
    if (item.ok() && !item.has("output")) item.refuse("output", "is missing");
    std::string output = read_text(item, "output");
    kept_.push_back({{"type", "function_call_output"}, {"call_id", id}, {"output", output}});
    end_turn();
    messages_.push_back({{"role", "tool"}, {"content", std::move(output)}, {"tool_call_id", id}});
  }

  // The text itself where it is given, else its summary.
  void add_reasoning(Fields& item) {
    std::string text = read_text(item, "content");
    if (text.empty()) text = read_text(item, "summary");
    if (text.empty()) return;
    kept_.push_back({{"type", "reasoning"}, {"content", text}});
    turn(Part::kReasoning)["reasoning_content"] = std::move(text);
  }

  Json messages_ = Json::array(), kept_ = Json::array();
  Json turn_;
  Part last_ = Part::kNone;
};

}  // namespace

Result<ReadItems> read_items(const Json& earlier, const Json& items, std::string_view field) {
  if (earlier.size() + items.size() > kMaxMessages)
    return invalid_argument(
        std::string(field),
        "'{}' holds {} items and the conversation before it {}, more than the limit of {}", field,
        items.size(), earlier.size(), kMaxMessages);
  Conversation conversation;
  for (const Json* list : {&earlier, &items}) {
    for (size_t i = 0; i < list->size(); ++i) {
      Fields item((*list)[i], fmt::format("{}[{}]", field, i));
      conversation.add(item);
      if (!item.ok()) return item.status().error();
    }
  }
  return conversation.take();
}

}  // namespace lockstep::serving::openai
