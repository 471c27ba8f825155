#include "lockstep/serving/openai/responses_reply.h"

#include <ctime>
#include <iterator>
#include <string>
#include <utility>

#include "lockstep/serving/openai/api_error.h"
#include "lockstep/serving/openai/logprobs.h"

namespace lockstep::serving::openai {
namespace {

Json text_part(std::string text, Json logprobs) {
  return {{"type", "output_text"},
          {"text", std::move(text)},
          {"annotations", Json::array()},
          {"logprobs", std::move(logprobs)}};
}

Json reasoning_part(std::string text) { return {{"type", "reasoning_text"}, {"text", std::move(text)}}; }

Json usage_of_response(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.all_cached()}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

class ResponsesReply : public GenerationListener {
 public:
  ResponsesReply(ReplyContext context, Json shown, ReplyForm form, ResponseKeeper keep)
      : context_(std::move(context)), form_(form), keep_(std::move(keep)) {
    response_ = {{"id", context_.head.id},
                 {"object", "response"},
                 {"created_at", context_.head.created},
                 {"status", "in_progress"},
                 {"completed_at", nullptr},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"model", context_.head.model},
                 {"output", Json::array()}};
    response_.update(shown);
    response_["usage"] = nullptr;
    usage_.prompt_tokens = context_.prompt_tokens;
  }

  void started() override {
    if (form_ == ReplyForm::kWhole) return;
    is_streaming_ = true;
    context_.responder->start_stream(200, "text/event-stream; charset=utf-8",
                                     {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
    emit("response.created", {{"response", response_}});
    emit("response.in_progress", {{"response", response_}});
  }

  void on_deltas(int /*choice_idx*/, Deltas deltas, const ChoiceSoFar& so_far) override {
    for (const Delta& delta : deltas) {
      switch (delta.kind) {
        case DeltaKind::kReasoning:
          open(Kind::kReasoning);
          add_piece("response.reasoning_text.delta", delta.text.text(), {});
          break;
        case DeltaKind::kContent:
          open(Kind::kMessage);
          add_piece("response.output_text.delta", delta.text.text(), logprobs_of(delta, so_far.tokens));
          break;
        case DeltaKind::kCallBegin:
          close("completed");
          open_call(delta.text.text());
          break;
        case DeltaKind::kCallArguments:
          add_piece("response.function_call_arguments.delta", delta.text.text(), {});
          break;
        case DeltaKind::kCallEnd:
          close("completed");
          break;
      }
    }
  }

  void on_choice_end(int /*choice_idx*/, const ChoiceEnd& end) override {
    usage_.add(0, end);
    is_cut_off_ = end.finish == ChoiceFinish::kLength || end.finish == ChoiceFinish::kAborted;
    if (end.finish == ChoiceFinish::kLength) incomplete_ = {{"reason", "max_output_tokens"}};
    close(is_cut_off_ ? "incomplete" : "completed");
  }

  void finished() override {
    response_["status"] = is_cut_off_ ? "incomplete" : "completed";
    response_["incomplete_details"] = incomplete_;
    if (!is_cut_off_) response_["completed_at"] = static_cast<int64_t>(std::time(nullptr));
    response_["usage"] = usage_of_response(usage_);
    if (keep_) keep_(response_);
    if (!is_streaming_) return context_.responder->send({.body = to_text(response_)});
    emit(is_cut_off_ ? "response.incomplete" : "response.completed", {{"response", response_}});
    context_.responder->finish();
  }

  void failed(const Error& error) override {
    if (!is_streaming_) return context_.responder->send(error_response(api_error(error)));
    response_["status"] = "failed";
    response_["error"] = {{"code", "server_error"}, {"message", error.message}};
    context_.responder->note_failure(error.message);
    emit("response.failed", {{"response", response_}});
    context_.responder->finish();
  }

 private:
  enum class Kind : unsigned char { kNone, kReasoning, kMessage, kCall };

  void emit(std::string_view type, const Json& fields) {
    if (!is_streaming_) return;
    Json event = {{"type", type}, {"sequence_number", num_events_++}};
    event.update(fields);
    context_.responder->write(fmt::format("event: {}\ndata: {}\n\n", type, to_text(event)));
  }

  // Where in the response an event belongs.
  Json in_item(Json fields) const {
    Json place = {{"item_id", item_["id"]}, {"output_index", response_["output"].size()}};
    if (kind_ != Kind::kCall) place["content_index"] = 0;
    place.update(fields);
    return place;
  }

  Json part(std::string text) {
    return kind_ == Kind::kMessage ? text_part(std::move(text), logprobs_) : reasoning_part(std::move(text));
  }

  void begin(Kind kind, Json item) {
    kind_ = kind;
    item_ = std::move(item);
    text_.clear();
    logprobs_ = Json::array();
    emit("response.output_item.added", {{"output_index", response_["output"].size()}, {"item", item_}});
  }

  void open(Kind kind) {
    if (kind_ == kind) return;
    close("completed");
    if (kind == Kind::kReasoning) {
      begin(kind, {{"id", random_id("rs_")},
                   {"type", "reasoning"},
                   {"status", "in_progress"},
                   {"summary", Json::array()},
                   {"content", Json::array()}});
    } else {
      begin(kind, {{"id", random_id("msg_")},
                   {"type", "message"},
                   {"status", "in_progress"},
                   {"role", "assistant"},
                   {"content", Json::array()}});
    }
    if (is_streaming_) emit("response.content_part.added", in_item({{"part", part("")}}));
  }

  void open_call(const std::string& name) {
    begin(Kind::kCall, {{"id", random_id("fc_")},
                        {"type", "function_call"},
                        {"status", "in_progress"},
                        {"call_id", random_id("call_")},
                        {"name", name},
                        {"arguments", ""}});
  }

  Json logprobs_of(const Delta& delta, const std::vector<runtime::OutputToken>& tokens) {
    if (context_.num_top_logprobs < 0) return Json::array();
    Json entries = chat_logprobs(*context_.tokenizer, tokens, delta.text);
    for (const Json& entry : entries) logprobs_.push_back(entry);
    return entries;
  }

  // One event a step of every stream: written without a document in between.
  void add_piece(std::string_view type, const std::string& piece, const Json& logprobs) {
    text_ += piece;
    if (!is_streaming_) return;
    std::string event = fmt::format(
        "event: {0}\ndata: "
        "{{\"type\":\"{0}\",\"sequence_number\":{1},\"item_id\":\"{2}\",\"output_index\":{3},",
        type, num_events_++, item_["id"].get_ref<const std::string&>(), response_["output"].size());
    if (kind_ != Kind::kCall) event += "\"content_index\":0,";
    event += "\"delta\":";
    append_json_string(piece, event);
    if (kind_ == Kind::kMessage) event += ",\"logprobs\":" + to_text(logprobs);
    event += "}\n\n";
    context_.responder->write(std::move(event));
  }

  void close(const char* status) {
    if (kind_ == Kind::kNone) return;
    if (kind_ == Kind::kCall) {
      emit("response.function_call_arguments.done", in_item({{"arguments", text_}}));
      item_["arguments"] = text_;
    } else {
      Json done = in_item({{"text", text_}});
      if (kind_ == Kind::kMessage) done["logprobs"] = logprobs_;
      emit(kind_ == Kind::kMessage ? "response.output_text.done" : "response.reasoning_text.done", done);
      const Json whole = part(text_);
      emit("response.content_part.done", in_item({{"part", whole}}));
      item_["content"] = Json::array({whole});
    }
    item_["status"] = status;
    emit("response.output_item.done", {{"output_index", response_["output"].size()}, {"item", item_}});
    response_["output"].push_back(std::move(item_));
    kind_ = Kind::kNone;
  }

  ReplyContext context_;
  const ReplyForm form_;
  ResponseKeeper keep_;
  Json response_;
  Usage usage_;
  Kind kind_ = Kind::kNone;  // of the item that is being written
  Json item_, logprobs_, incomplete_;
  std::string text_;  // its text or arguments so far
  int64_t num_events_ = 0;
  bool is_streaming_ = false, is_cut_off_ = false;
};

}  // namespace

std::unique_ptr<GenerationListener> make_responses_reply(ReplyContext context, Json shown, ReplyForm form,
                                                         ResponseKeeper keep) {
  return std::make_unique<ResponsesReply>(std::move(context), std::move(shown), form, std::move(keep));
}

}  // namespace lockstep::serving::openai
