#include "lockstep/serving/tool_parsing/tagged.h"

#include <string>
#include <utility>

#include "lockstep/serving/tool_parsing/call_body.h"
#include "lockstep/serving/tool_parsing/call_builder.h"

namespace lockstep::serving::tool_parsing {
namespace {

class TaggedParser : public ToolParser {
 public:
  TaggedParser(const Json& tools, Tagged inside) : tools_(tools), inside_(inside) {}

  void push(Lexeme lexeme, Deltas& out) override {
    if (lexeme.kind == MarkerKind::kCallBegin) {
      if (in_tag_) close(TracedText(), out);
      in_tag_ = true;
      unread_ = std::move(lexeme.text);
      return;
    }
    if (lexeme.kind == MarkerKind::kCallEnd && in_tag_) return close(std::move(lexeme.text), out);
    if (!in_tag_) return call_.content(std::move(lexeme.text), out);
    push_body(std::move(lexeme.text), out);
  }

  void finish(Deltas& out) override {
    if (call_.in_call()) {
      call_.cut_off({}, out);
    } else if (in_tag_) {
      call_.content(unread_.take_all(), out);
    }
    leave_tag();
    call_.finish_content(out);
  }

 private:
  void push_body(TracedText text, Deltas& out) {
    std::string piece = text.text();
    if (!call_.in_call()) unread_.append(std::move(text));
    if (!body_) {
      const size_t first = piece.find_first_not_of(" \t\r\n");
      if (first == std::string::npos) return;
      piece.erase(0, first);
      body_ = make_body(piece[0]);
    }
    body_->push(piece, call_, out);
    if (body_->refused()) {
      call_.content(unread_.take_all(), out);
      leave_tag();
    }
  }

  std::unique_ptr<CallBody> make_body(char first) const {
    if (inside_ == Tagged::kGlm) return make_glm_body(tools_);
    return first == '{' ? make_json_body() : make_function_body(tools_);
  }

  void close(TracedText tag, Deltas& out) {
    if (body_) body_->close(call_, out);
    if (call_.in_call()) {
      call_.end(out);
    } else {
      unread_.append(std::move(tag));
      call_.content(unread_.take_all(), out);
    }
    leave_tag();
  }

  void leave_tag() {
    in_tag_ = false;
    body_ = nullptr;
    unread_ = {};
  }

  const Json tools_;
  const Tagged inside_;
  CallBuilder call_;
  bool in_tag_ = false;
  std::unique_ptr<CallBody> body_;
  TracedText unread_;  // the tag and what follows it, until the call begins: content, should it be none
};

}  // namespace

std::vector<Marker> tagged_markers() {
  return {{MarkerKind::kCallBegin, "<tool_call>", {}}, {MarkerKind::kCallEnd, "</tool_call>", {}}};
}

std::unique_ptr<ToolParser> make_tagged_parser(const Json& tools, Tagged inside) {
  return std::make_unique<TaggedParser>(tools, inside);
}

}  // namespace lockstep::serving::tool_parsing
