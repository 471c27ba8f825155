#include "lockstep/serving/tool_parsing/dsml.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/serving/tool_parsing/call_body.h"
#include "lockstep/serving/tool_parsing/call_builder.h"

namespace lockstep::serving::tool_parsing {
namespace {

class DsmlParser : public ToolParser {
 public:
  explicit DsmlParser(const Json& tools) : tools_(tools) {}

  void push(Lexeme lexeme, Deltas& out) override {
    if (lexeme.kind == MarkerKind::kCallsBegin) {
      leave(out);
      is_inside_ = true;
      unread_ = std::move(lexeme.text);
      return;
    }
    if (!is_inside_) return call_.content(std::move(lexeme.text), out);
    if (lexeme.kind == MarkerKind::kCallsEnd) return close(std::move(lexeme.text), out);
    push_inside(std::move(lexeme.text), out);
  }

  void finish(Deltas& out) override {
    leave(out);
    call_.finish_content(out);
  }

 private:
  void push_inside(TracedText text, Deltas& out) {
    while (!text.empty()) {
      std::string piece = text.text();
      if (!body_) {
        const size_t frame = std::min(piece.find_first_not_of(" \t\r\n"), piece.size());
        unread_.append(text.take(frame));
        if (text.empty()) return;
        piece.erase(0, frame);
        body_ = make_dsml_body(tools_);
      }
      if (!call_.in_call()) unread_.append(std::move(text));
      text = {};
      body_->push(piece, call_, out);
      if (body_->refused()) return refuse(out);
      if (!call_.in_call()) return;
      unread_ = {};
      if (!body_->done()) return;
      text = TracedText(body_->take_rest());
      call_.end(out);
      body_ = nullptr;
    }
  }

  void refuse(Deltas& out) {
    call_.content(unread_.take_all(), out);
    body_ = nullptr;
    is_inside_ = false;
  }

  void close(TracedText tag, Deltas& out) {
    if (call_.in_call()) {
      body_->close(call_, out);
      call_.end(out);
    } else if (body_ || num_calls_seen_ == call_.num_calls()) {
      unread_.append(std::move(tag));
      call_.content(unread_.take_all(), out);
    }
    forget();
  }

  void leave(Deltas& out) {
    if (call_.in_call()) {
      call_.cut_off({}, out);
    } else if (is_inside_ && (body_ || num_calls_seen_ == call_.num_calls())) {
      call_.content(unread_.take_all(), out);
    }
    forget();
  }

  void forget() {
    is_inside_ = false;
    body_ = nullptr;
    unread_ = {};
    num_calls_seen_ = call_.num_calls();
  }

  const Json tools_;
  CallBuilder call_;
  bool is_inside_ = false;
  int num_calls_seen_ = 0;  // before the tag that is open
  std::unique_ptr<SelfEndingBody> body_;
  TracedText unread_;  // what has not become a call: content, should it be none
};

}  // namespace

std::vector<Marker> dsml_markers() {
  return {{MarkerKind::kCallsBegin, "<｜DSML｜function_calls>", {}},
          {MarkerKind::kCallsEnd, "</｜DSML｜function_calls>", {}}};
}

std::unique_ptr<ToolParser> make_dsml_parser(const Json& tools) {
  return std::make_unique<DsmlParser>(tools);
}

}  // namespace lockstep::serving::tool_parsing
