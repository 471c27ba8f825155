#include "lockstep/serving/tool_parsing/mistral.h"

#include <optional>
#include <string>
#include <utility>

#include "lockstep/serving/tool_parsing/call_builder.h"
#include "lockstep/serving/tool_parsing/json_calls.h"

namespace lockstep::serving::tool_parsing {
namespace {

constexpr size_t kMaxCalledNameBytes = 512;

class MistralParser : public ToolParser {
 public:
  void push(Lexeme lexeme, Deltas& out) override {
    switch (lexeme.kind) {
      case MarkerKind::kCallsBegin:
        leave(out);
        state_ = State::kStart;
        unread_ = std::move(lexeme.text);
        return;
      case MarkerKind::kCallSeparator:  // [ARGS]
        if (state_ == State::kName) return begin_arguments(std::move(lexeme.text), out);
        break;
      case MarkerKind::kCallBegin:  // [CALL_ID]: an id that is ours to give stands here
        if (state_ == State::kName) {
          id_begin_ = unread_.text().size();
          unread_.append(std::move(lexeme.text));
          return;
        }
        break;
      default:
        break;
    }
    push_text(std::move(lexeme.text), out);
  }

  void finish(Deltas& out) override {
    leave(out);
    call_.finish_content(out);
  }

 private:
  enum class State : unsigned char { kContent, kStart, kObjects, kName, kArguments, kAfterArguments };

  void push_text(TracedText text, Deltas& out) {
    switch (state_) {
      case State::kContent:
        return call_.content(std::move(text), out);
      case State::kStart:
        return push_start(std::move(text), out);
      case State::kObjects:
        objects_->push(std::move(text), call_, out);
        if (objects_->refused()) state_ = State::kContent;
        return;
      case State::kName:
        unread_.append(std::move(text));
        if (unread_.text().size() > kMaxCalledNameBytes) give_up(out);
        return;
      case State::kArguments: {
        const size_t length = end_.advance(text.text());
        call_.arguments(text.take(length).text(), out);
        if (!end_.done()) return;
        call_.end(out);
        state_ = State::kAfterArguments;
        if (!text.empty()) push_text(std::move(text), out);
        return;
      }
      case State::kAfterArguments:
        state_ = State::kContent;
        return call_.content(std::move(text), out);
    }
  }

  void push_start(TracedText text, Deltas& out) {
    const size_t first = text.text().find_first_not_of(" \t\r\n");
    if (first == std::string::npos) {
      unread_.append(std::move(text));
      return;
    }
    const char c = text.text()[first];
    if (c != '[' && c != '{') {
      state_ = State::kName;
      id_begin_.reset();
      return push_text(std::move(text), out);
    }
    state_ = State::kObjects;
    objects_.emplace("[],", NameCheck());
    objects_->begin_unread(unread_.take_all());
    push_text(std::move(text), out);
  }

  void begin_arguments(TracedText marker, Deltas& out) {
    const std::string& text = unread_.text();
    const size_t begin = text.starts_with(kMarker) ? kMarker.size() : 0;
    const std::string name(
        trimmed(std::string_view(text).substr(begin, id_begin_.value_or(text.size()) - begin)));
    if (name.empty()) {
      unread_.append(std::move(marker));
      return give_up(out);
    }
    unread_ = {};
    call_.begin(name, out);
    end_ = {};
    state_ = State::kArguments;
  }

  void give_up(Deltas& out) {
    state_ = State::kContent;
    call_.content(unread_.take_all(), out);
  }

  void leave(Deltas& out) {
    if (state_ == State::kStart || state_ == State::kName) give_up(out);
    if (state_ == State::kObjects) objects_->finish(call_, out);
    if (state_ == State::kArguments) call_.cut_off({}, out);
    state_ = State::kContent;
  }

  static constexpr std::string_view kMarker = "[TOOL_CALLS]";
  State state_ = State::kContent;
  CallBuilder call_;
  std::optional<JsonCalls> objects_;
  ValueEnd end_;
  TracedText unread_;               // the marker and what follows it, until the call begins
  std::optional<size_t> id_begin_;  // where in it an id begins
};

}  // namespace

std::vector<Marker> mistral_markers() {
  return {{MarkerKind::kCallsBegin, "[TOOL_CALLS]", {}},
          {MarkerKind::kCallBegin, "[CALL_ID]", {}},
          {MarkerKind::kCallSeparator, "[ARGS]", {}}};
}

std::unique_ptr<ToolParser> make_mistral_parser() { return std::make_unique<MistralParser>(); }

}  // namespace lockstep::serving::tool_parsing
