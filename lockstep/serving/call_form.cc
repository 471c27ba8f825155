#include "lockstep/serving/call_form.h"

#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/hash.h"

namespace lockstep::serving {
namespace {

constexpr const char* kProbeCall = "lockstep_probe_call";

Json messages_with_a_call() {
  return Json::array(
      {{{"role", "user"}, {"content", "Hello"}},
       {{"role", "assistant"},
        {"content", ""},
        {"tool_calls", Json::array({{{"type", "function"},
                                     {"id", "call_000000000"},
                                     {"function", {{"name", kProbeCall}, {"arguments", {{"a", 1}}}}}}})}},
       {{"role", "tool"}, {"content", "1"}, {"tool_call_id", "call_000000000"}}});
}

void apply_to_arguments(CallForm::Arguments wanted, Json& arguments) {
  if (wanted == CallForm::Arguments::kText) {
    if (!arguments.is_string()) arguments = to_text(arguments);
    return;
  }
  if (!arguments.is_string()) return;
  auto parsed = parse_json(arguments.get_ref<const std::string&>());
  if (parsed.ok() && parsed->is_object()) arguments = std::move(*parsed);
}

// An id of nine letters and digits is kept; any other becomes one, the same each time.
void shorten_id(Json& object, const char* key) {
  constexpr size_t kLength = 9;
  constexpr std::string_view kCharacters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return;
  const auto& id = found->get_ref<const std::string&>();
  if (id.size() == kLength && id.find_first_not_of(kCharacters) == std::string::npos) return;
  uint64_t hash = Hasher().add(id).value();
  std::string shortened;
  for (; shortened.size() < kLength; hash /= kCharacters.size())
    shortened += kCharacters[hash % kCharacters.size()];
  *found = shortened;
}

}  // namespace

CallForm find_call_form(const std::function<Result<std::string>(const Json& messages)>& render) {
  for (const auto content : {CallForm::EmptyContent::kKept, CallForm::EmptyContent::kNull}) {
    for (const auto arguments : {CallForm::Arguments::kObject, CallForm::Arguments::kText}) {
      for (const auto ids : {CallForm::Ids::kKept, CallForm::Ids::kNineCharacters}) {
        const CallForm form{arguments, content, ids};
        Json messages = messages_with_a_call();
        apply_call_form(form, messages);
        const auto rendered = render(messages);
        if (rendered.ok() && rendered->find(kProbeCall) != std::string::npos) return form;
      }
    }
  }
  return {};
}

void apply_call_form(const CallForm& form, Json& messages) {
  const bool shortens = form.ids == CallForm::Ids::kNineCharacters;
  for (Json& message : messages) {
    if (shortens && message.is_object()) shorten_id(message, "tool_call_id");
    if (!message.is_object() || !message.contains("tool_calls") || !message["tool_calls"].is_array())
      continue;
    for (Json& call : message["tool_calls"])
      if (call.is_object() && call.contains("function") && call["function"].is_object() &&
          call["function"].contains("arguments"))
        apply_to_arguments(form.arguments, call["function"]["arguments"]);
    for (Json& call : message["tool_calls"])
      if (shortens && call.is_object()) shorten_id(call, "id");
    const bool is_empty = message.contains("content") && message["content"] == "";
    if (is_empty && form.empty_content == CallForm::EmptyContent::kNull) message["content"] = nullptr;
  }
}

}  // namespace lockstep::serving
