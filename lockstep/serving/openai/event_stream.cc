#include "lockstep/serving/openai/event_stream.h"

#include <iterator>
#include <utility>

#include "lockstep/serving/openai/api_error.h"

namespace lockstep::serving::openai {

std::string_view name_of(ChoiceFinish finish) {
  switch (finish) {
    case ChoiceFinish::kStop:
      return "stop";
    case ChoiceFinish::kLength:
      return "length";
    case ChoiceFinish::kToolCalls:
      return "tool_calls";
    case ChoiceFinish::kAborted:
      return "abort";
  }
  return "stop";
}

EventStream::EventStream(ReplyContext context, std::string_view object) : context_(std::move(context)) {
  head_ = to_text(head_json(context_.head, object));
  head_.pop_back();
  usage_.prompt_tokens = context_.prompt_tokens;
}

void EventStream::start() {
  started_ = true;
  context_.responder->start_stream(200, "text/event-stream; charset=utf-8",
                                   {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}

void EventStream::choice(int choice_idx, std::string_view body, std::string_view logprobs_json,
                         std::string_view finish_reason) {
  std::string event;
  event.reserve(head_.size() + body.size() + logprobs_json.size() + 128);
  const std::string_view quote = finish_reason.empty() ? "" : "\"";
  fmt::format_to(
      std::back_inserter(event),
      "data: {},\"choices\":[{{\"index\":{},{},\"logprobs\":{},\"finish_reason\":{}{}{}}}]{}}}\n\n", head_,
      choice_idx, body, logprobs_json.empty() ? "null" : logprobs_json, quote,
      finish_reason.empty() ? "null" : finish_reason, quote, context_.include_usage ? ",\"usage\":null" : "");
  context_.responder->write(std::move(event));
}

void EventStream::add_usage(int choice_idx, const ChoiceEnd& end) {
  usage_.add(choice_idx / context_.choices_per_prompt, end);
}

void EventStream::finish() {
  std::string last;
  if (context_.include_usage)
    last = fmt::format("data: {},\"choices\":[],\"usage\":{}}}\n\n", head_, to_text(usage_json(usage_)));
  context_.responder->write(last.append(kSseDone));
  context_.responder->finish();
}

void EventStream::fail(const Error& error) {
  if (!started_) {
    context_.responder->send(error_response(api_error(error)));
    return;
  }
  context_.responder->note_failure(error.message);
  context_.responder->write(sse_event(to_text(error_json(api_error(error)))).append(kSseDone));
  context_.responder->finish();
}

}  // namespace lockstep::serving::openai
