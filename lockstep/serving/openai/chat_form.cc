#include "lockstep/serving/openai/chat_form.h"

#include <utility>

#include "lockstep/serving/constraints/tool_forms.h"

namespace lockstep::serving::openai {
namespace {

using constraints::Opening;

constexpr std::string_view kHarmonyAnswer = "<|channel|>final<|message|>";
constexpr std::string_view kHarmonyNextMessage = "<|start|>assistant";

bool is_harmony(const ChatModel& model) { return model.reasoning_format() == reasoning::Format::kHarmony; }

// Reasoning is free; what counts begins behind it.
std::vector<Opening> after_reasoning(const ChatModel& model, const EncodedChat& encoded,
                                     std::string_view harmony_opening, Opening::End end) {
  if (is_harmony(model) && !harmony_opening.empty()) return {{std::string(harmony_opening), end}};
  if (encoded.reply_start == reasoning::Place::kInside) return {{std::string(reasoning::kCloseTag), end}};
  return {};
}

constraints::CallStyle call_style(const ChatModel& model) {
  return {.format = model.tool_format(),
          .template_source = model.template_source(),
          .token_id = [&model](std::string_view text) -> std::optional<int32_t> {
            const auto id = model.tokenizer().find(text);
            return id && model.tokenizer().is_added(*id) ? id : std::nullopt;
          }};
}

}  // namespace

Result<std::optional<WantedForm>> wanted_form(const ChatRequest& chat, const ChatModel& model,
                                              const EncodedChat& encoded) {
  const ToolOptions& tools = chat.tools;
  const Json& callable = tools.callable.is_null() ? tools.tools : tools.callable;
  const auto how_many =
      tools.one_call_at_most ? constraints::HowMany::kOne : constraints::HowMany::kOneOrMore;
  if (tools.demand == ToolOptions::Demand::kMustCall) {
    auto calls = constraints::required_calls(callable, call_style(model), how_many);
    if (!calls) return calls.error();
    return std::optional(WantedForm{
        std::move(calls->form), after_reasoning(model, encoded, kHarmonyNextMessage, Opening::End::kBarred)});
  }
  const bool is_narrowed =
      !callable.is_null() && (constraints::has_strict_tool(callable) || !tools.callable.is_null());
  if (!callable.is_null() && chat.options.form)
    return invalid_argument(
        chat.options.form->field,
        "'{}' may not be given together with {} tools that may be called: the reply is either; give "
        "tool_choice \"required\" or \"none\"",
        chat.options.form->field, callable.size());
  if (is_narrowed) {
    auto calls = constraints::calls_that_begin(callable, call_style(model), how_many);
    if (!calls) return calls.error();
    std::vector<Opening> openings = after_reasoning(model, encoded, {}, Opening::End::kAllowed);
    openings.push_back({calls->begin, Opening::End::kAllowed});
    return std::optional(WantedForm{std::move(calls->form), std::move(openings)});
  }
  if (!chat.options.form) return std::optional<WantedForm>();
  return std::optional(
      WantedForm{*chat.options.form, after_reasoning(model, encoded, kHarmonyAnswer, Opening::End::kBarred)});
}

}  // namespace lockstep::serving::openai
