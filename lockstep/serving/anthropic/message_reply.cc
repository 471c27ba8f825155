#include "lockstep/serving/anthropic/message_reply.h"

#include <string>
#include <utility>

#include "lockstep/serving/anthropic/message_error.h"

namespace lockstep::serving::anthropic {
namespace {

using openai::Usage;

const char* stop_reason(const ChoiceEnd& end) {
  if (end.finish == ChoiceFinish::kToolCalls) return "tool_use";
  if (end.finish == ChoiceFinish::kLength) return "max_tokens";
  return end.stop_string.empty() ? "end_turn" : "stop_sequence";
}

Json usage_of_message(const Usage& usage) {
  // What came from the cache is counted apart; it is known at the end.
  return {{"input_tokens", usage.prompt_tokens - usage.all_cached()},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.all_cached()},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"thinking_tokens", usage.reasoning_tokens}}}};
}

class MessageReply : public GenerationListener {
 public:
  MessageReply(openai::ReplyContext context, ReplyForm form) : context_(std::move(context)), form_(form) {
    usage_.prompt_tokens = context_.prompt_tokens;
    message_ = {{"id", context_.head.id},   {"type", "message"},
                {"role", "assistant"},      {"model", context_.head.model},
                {"content", Json::array()}, {"stop_reason", nullptr},
                {"stop_sequence", nullptr}, {"usage", usage_of_message(usage_)}};
  }

  void started() override {
    if (form_ == ReplyForm::kWhole) return;
    is_streaming_ = true;
    context_.responder->start_stream(200, "text/event-stream; charset=utf-8",
                                     {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
    emit("message_start", {{"message", message_}});
    emit("ping", Json::object());
  }

  void on_deltas(int /*choice_idx*/, Deltas deltas, const ChoiceSoFar& /*so_far*/) override {
    for (const Delta& delta : deltas) {
      switch (delta.kind) {
        case DeltaKind::kReasoning:
          open(Kind::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
          add_piece("thinking_delta", "thinking", delta.text.text());
          break;
        case DeltaKind::kContent:
          open(Kind::kText, {{"type", "text"}, {"text", ""}, {"citations", nullptr}});
          add_piece("text_delta", "text", delta.text.text());
          break;
        case DeltaKind::kCallBegin:
          close();
          open(Kind::kCall, {{"type", "tool_use"},
                             {"id", openai::random_id("toolu_")},
                             {"name", delta.text.text()},
                             {"input", Json::object()}});
          break;
        case DeltaKind::kCallArguments:
          add_piece("input_json_delta", "partial_json", delta.text.text());
          break;
        case DeltaKind::kCallEnd:
          close();
          break;
      }
    }
  }

  void on_choice_end(int /*choice_idx*/, const ChoiceEnd& end) override {
    close();
    usage_.add(0, end);
    message_["stop_reason"] = stop_reason(end);
    if (!end.stop_string.empty()) message_["stop_sequence"] = end.stop_string;
    message_["usage"] = usage_of_message(usage_);
  }

  void finished() override {
    if (!is_streaming_) return context_.responder->send({.body = to_text(message_)});
    emit("message_delta",
         {{"delta", {{"stop_reason", message_["stop_reason"]}, {"stop_sequence", message_["stop_sequence"]}}},
          {"usage", message_["usage"]}});
    emit("message_stop", Json::object());
    context_.responder->finish();
  }

  void failed(const Error& error) override {
    const openai::ApiError said = openai::api_error(error);
    if (!is_streaming_) return context_.responder->send(message_error_response(said));
    context_.responder->note_failure(error.message);
    context_.responder->write(fmt::format("event: error\ndata: {}\n\n", to_text(message_error_json(said))));
    context_.responder->finish();
  }

 private:
  enum class Kind : unsigned char { kNone, kThinking, kText, kCall };

  void emit(std::string_view type, const Json& fields) {
    if (!is_streaming_) return;
    Json event = {{"type", type}};
    event.update(fields);
    context_.responder->write(fmt::format("event: {}\ndata: {}\n\n", type, to_text(event)));
  }

  void open(Kind kind, Json block) {
    if (kind_ == kind) return;
    close();
    kind_ = kind;
    block_ = std::move(block);
    text_.clear();
    emit("content_block_start", {{"index", message_["content"].size()}, {"content_block", block_}});
  }

  void add_piece(std::string_view type, std::string_view key, const std::string& piece) {
    text_ += piece;
    if (!is_streaming_ || piece.empty()) return;
    std::string event = fmt::format(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{},\"delta\":{{"
        "\"type\":\"{}\",\"{}\":",
        message_["content"].size(), type, key);
    openai::append_json_string(piece, event);
    context_.responder->write(event.append("}}\n\n"));
  }

  void close() {
    if (kind_ == Kind::kNone) return;
    if (kind_ == Kind::kThinking) block_["thinking"] = text_;
    if (kind_ == Kind::kText) block_["text"] = text_;
    // What was cut off is no object; the client sees it in the stop_reason.
    if (kind_ == Kind::kCall)
      if (auto input = parse_json(text_); input.ok() && input->is_object())
        block_["input"] = std::move(*input);
    emit("content_block_stop", {{"index", message_["content"].size()}});
    message_["content"].push_back(std::move(block_));
    kind_ = Kind::kNone;
  }

  openai::ReplyContext context_;
  const ReplyForm form_;
  Json message_, block_;
  std::string text_;  // of the block that is being written
  Kind kind_ = Kind::kNone;
  Usage usage_;
  bool is_streaming_ = false;
};

}  // namespace

std::unique_ptr<GenerationListener> make_message_reply(openai::ReplyContext context, ReplyForm form) {
  return std::make_unique<MessageReply>(std::move(context), form);
}

}  // namespace lockstep::serving::anthropic
