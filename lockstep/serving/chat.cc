#include "lockstep/serving/chat.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/base/log.h"

namespace lockstep::serving {
namespace {

constexpr std::string_view kProbeTool = "lockstep_probe_tool";

Json probe_messages() { return Json::array({{{"role", "user"}, {"content", "Hello"}}}); }

Json probe_tools() {
  return Json::array({{{"type", "function"},
                       {"function",
                        {{"name", kProbeTool},
                         {"description", "A probe."},
                         {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}}});
}

// What a model that was trained on calls has to be told when its template says nothing of tools.
std::string describe_tools(const Json& tools, tool_parsing::Format format) {
  std::string text = "You can call functions. These are their definitions, each a JSON object:\n";
  for (const Json& tool : tools) text += to_text(tool) + "\n";
  text += "To call one, write this, with the function's name and a JSON object of its arguments:\n";
  text += tool_parsing::call_example(format);
  return text + "Several calls may follow each other. The results will be given to you.";
}

void add_to_system_message(Json& messages, const std::string& text) {
  if (!messages.empty() && messages[0].value("role", "") == "system" && messages[0]["content"].is_string()) {
    messages[0]["content"] = messages[0]["content"].get<std::string>() + "\n\n" + text;
    return;
  }
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
}

std::vector<std::string> special_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    if (tokenizer.is_special(id)) texts.emplace_back(tokenizer.token_bytes(id));
  return texts;
}

}  // namespace

ReplyReader::ReplyReader(const Tokenizer& tokenizer, ReplyOptions options)
    : tokenizer_(&tokenizer), decoder_(tokenizer, SpecialTokens::kSkip), parser_(std::move(options)) {}

Deltas ReplyReader::push(int32_t token_id, int token_idx) {
  if (!parser_.is_marker_token(token_id)) {
    // A special token leaves no text, and so no trace.
    if (tokenizer_->is_special(token_id)) token_idx = TracedText::kNoToken;
    return parser_.push(token_id, TracedText(decoder_.push(token_id), token_idx));
  }
  std::string literal;
  if (!tokenizer_->is_special(token_id)) literal = tokenizer_->token_bytes(token_id);
  Deltas deltas = parser_.push_text(TracedText(decoder_.flush()));
  for (Delta& delta : parser_.push(token_id, TracedText(std::move(literal), token_idx)))
    deltas.push_back(std::move(delta));
  return deltas;
}

Deltas ReplyReader::finish() {
  Deltas deltas = parser_.push_text(TracedText(decoder_.finish()));
  for (Delta& delta : parser_.finish()) deltas.push_back(std::move(delta));
  return deltas;
}

ChatModel::ChatModel(Tokenizer tokenizer, std::optional<ChatTemplate> chat_template)
    : tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      spellings_(special_texts(tokenizer_)) {}

Result<ChatModel> ChatModel::load(const std::filesystem::path& directory, const ChatOptions& options) {
  auto tokenizer = Tokenizer::load(directory);
  if (!tokenizer) return tokenizer.error();
  std::optional<ChatTemplate> chat_template;
  if (auto loaded = ChatTemplate::load(directory)) {
    chat_template = std::move(*loaded);
  } else if (loaded.error().code != ErrorCode::kNotFound) {
    return loaded.error();
  }
  auto variables = load_template_variables(directory);
  if (!variables) return variables.error();
  ChatModel model(std::move(*tokenizer), std::move(chat_template));
  model.special_variables_ = std::move(variables->values);
  const auto prefix = model.tokenizer_.prompt_prefix();
  model.prompt_prefix_.assign(prefix.begin(), prefix.end());
  if (prefix.empty() && variables->add_bos_token)
    if (const auto bos = model.tokenizer_.find(model.special_variables_.value("bos_token", "")))
      model.prompt_prefix_ = {*bos};
  model.choose_formats(options);
  model.probe_template();
  return model;
}

void ChatModel::choose_formats(const ChatOptions& options) {
  const auto knows = [&](std::string_view text) {
    const auto id = tokenizer_.find(text);
    return (id && tokenizer_.is_added(*id)) ||
           (template_ && template_->source().find(text) != std::string::npos);
  };
  const auto seen_tools = [&] {
    using tool_parsing::Format;
    if (knows("<|channel|>") && knows("<|message|>")) return Format::kHarmony;
    if (knows("｜DSML｜")) return Format::kDsml;
    if (knows("<｜tool▁calls▁begin｜>")) return Format::kDeepSeek;
    if (knows("<tool_call>")) return knows("<arg_key>") ? Format::kGlm : Format::kTagged;
    if (knows("[TOOL_CALLS]")) return Format::kMistral;
    return knows("<|python_tag|>") ? Format::kLlama : Format::kNone;
  };
  const auto seen_reasoning = [&] {
    if (tools_ == tool_parsing::Format::kHarmony) return reasoning::Format::kHarmony;
    return knows(reasoning::kCloseTag) ? reasoning::Format::kThinkTags : reasoning::Format::kNone;
  };
  tools_ = options.tools ? *options.tools : seen_tools();
  reasoning_ = options.reasoning ? *options.reasoning : seen_reasoning();
}

// Says at the start what would otherwise fail with the first request, and sees whether the template prints
// tools.
void ChatModel::probe_template() {
  if (!template_) return;
  ChatInput input{.messages = probe_messages()};
  if (const auto plain = template_->render(variables_for(special_variables_, input)); !plain)
    log_warning("the chat template does not render a single user message: {}", plain.error().message);
  input.tools = probe_tools();
  const auto rendered = template_->render(variables_for(special_variables_, input));
  call_form_ = find_call_form([&](const Json& messages) {
    return template_->render(variables_for(special_variables_, {.messages = messages}));
  });
  template_prints_tools_ = rendered.ok() && rendered->find(kProbeTool) != std::string::npos;
}

Result<EncodedChat> ChatModel::encode_chat(const ChatInput& input) const {
  if (!template_)
    return invalid_argument(
        "messages", "this model has no chat template, so it cannot chat; use /v1/completions with a prompt");
  if (!input.tools.is_null() && tools_ == tool_parsing::Format::kNone)
    return invalid_argument("tools", "this model has no form of calls that is known here; leave 'tools' out");
  ChatInput hidden = input;
  apply_call_form(call_form_, hidden.messages);
  ControlText control(spellings_);
  for (Json& message : hidden.messages)
    if (message.value("role", "") != "assistant") control.hide(message);
  control.hide(hidden.tools);
  if (!input.tools.is_null() && !template_prints_tools_) {
    add_to_system_message(hidden.messages, describe_tools(hidden.tools, tools_));
    hidden.tools = nullptr;
  }
  auto rendered = template_->render(variables_for(special_variables_, hidden), {.now = std::time(nullptr)});
  if (!rendered)
    return invalid_argument("messages", "the model's chat template does not accept these messages: {}",
                            rendered.error().message);
  EncodedChat chat{.text = std::move(*rendered)};
  chat.ids = control.encode(tokenizer_, chat.text);
  if (reasoning_ == reasoning::Format::kThinkTags) chat.reply_start = reasoning::starts_inside(chat.text);
  return chat;
}

std::vector<int32_t> ChatModel::encode_prompt(std::string_view text) const {
  std::vector<int32_t> ids = tokenizer_.encode(text, AddedTokens::kParse);
  const bool has_prefix = ids.size() >= prompt_prefix_.size() &&
                          std::equal(prompt_prefix_.begin(), prompt_prefix_.end(), ids.begin());
  if (!has_prefix) ids.insert(ids.begin(), prompt_prefix_.begin(), prompt_prefix_.end());
  return ids;
}

std::vector<int32_t> ChatModel::marker_ids() const {
  std::vector<int32_t> ids;
  for (const auto& markers : {tool_parsing::markers_of(tools_), reasoning::markers_of(reasoning_)})
    for (const Marker& marker : markers)
      if (const auto id = tokenizer_.find(marker.text); id && tokenizer_.is_added(*id)) ids.push_back(*id);
  return ids;
}

ReplyOptions ChatModel::reply_options(const EncodedChat& chat, const Json& tools) const {
  ReplyOptions options{.reasoning = reasoning_, .start = chat.reply_start};
  if (!tools.is_null()) options.tools = tools_;
  options.tool_definitions = tools;
  std::vector<Marker> markers = tool_parsing::markers_of(options.tools);
  for (Marker& marker : reasoning::markers_of(reasoning_)) markers.push_back(std::move(marker));
  for (Marker& marker : markers)
    if (const auto id = tokenizer_.find(marker.text); id && tokenizer_.is_added(*id)) marker.token_id = id;
  options.markers = std::move(markers);
  return options;
}

}  // namespace lockstep::serving
