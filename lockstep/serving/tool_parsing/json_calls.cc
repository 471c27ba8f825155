#include "lockstep/serving/tool_parsing/json_calls.h"

#include <algorithm>
#include <utility>

namespace lockstep::serving::tool_parsing {

JsonCalls::JsonCalls(std::string separators, NameCheck accepts)
    : between_(" \t\r\n" + std::move(separators)), accepts_(std::move(accepts)) {}

void JsonCalls::push(TracedText text, CallBuilder& call, Deltas& out) {
  while (!text.empty() && !refused_) {
    if (!body_) {
      const size_t frame = std::min(text.text().find_first_not_of(between_), text.text().size());
      unread_.append(text.take(frame));
      if (text.empty()) return;
      if (text.text()[0] != '{') return refuse(std::move(text), call, out);
      body_ = make_json_body(accepts_);
      end_ = {};
    }
    push_object(text.take(end_.advance(text.text())), call, out);
  }
  if (refused_ && !text.empty()) call.content(std::move(text), out);
}

void JsonCalls::push_object(TracedText piece, CallBuilder& call, Deltas& out) {
  const std::string text = piece.text();
  if (!call.in_call()) unread_.append(std::move(piece));
  body_->push(text, call, out);
  if (call.in_call()) {
    unread_ = {};
    if (!end_.done()) return;
    body_->close(call, out);
    call.end(out);
    body_ = nullptr;
  } else if (body_->refused() || end_.done()) {
    refuse({}, call, out);
  }
}

void JsonCalls::refuse(TracedText rest, CallBuilder& call, Deltas& out) {
  refused_ = true;
  unread_.append(std::move(rest));
  call.content(unread_.take_all(), out);
}

void JsonCalls::finish(CallBuilder& call, Deltas& out) {
  if (call.in_call()) {
    call.cut_off({}, out);
  } else if (body_) {
    call.content(unread_.take_all(), out);
  }
  body_ = nullptr;
}

}  // namespace lockstep::serving::tool_parsing
