#include "lockstep/serving/tool_parsing/deepseek.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/serving/tool_parsing/call_builder.h"

namespace lockstep::serving::tool_parsing {
namespace {

constexpr std::string_view kCallType = "function";
constexpr std::string_view kFence = "```";
constexpr size_t kMaxTypeOrNameBytes = 512;  // of a type or a name; a longer one is no call

// The length of the end of `text` that may belong to the closing fence: white space, up to three backticks,
// white space.
size_t closing_frame_bytes(std::string_view text) {
  size_t begin = text.size();
  const auto skip_space = [&] {
    while (begin > 0 && std::string_view(" \t\r\n").find(text[begin - 1]) != std::string_view::npos) --begin;
  };
  skip_space();
  for (size_t ticks = 0; ticks < kFence.size() && begin > 0 && text[begin - 1] == '`'; ++ticks) --begin;
  skip_space();
  return text.size() - begin;
}

class DeepSeekParser : public ToolParser {
 public:
  void push(Lexeme lexeme, Deltas& out) override {
    switch (lexeme.kind) {
      case MarkerKind::kCallsBegin:
        return enter(State::kBetweenCalls, out);
      case MarkerKind::kCallBegin:
        return enter(State::kHead, out);
      case MarkerKind::kCallSeparator:
        if (state_ == State::kHead) end_head(out);
        return;
      case MarkerKind::kCallEnd:
        if (state_ != State::kContent) enter(State::kBetweenCalls, out);
        return;
      case MarkerKind::kCallsEnd:
        if (state_ != State::kContent) enter(State::kContent, out);
        return;
      default:
        push_text(std::move(lexeme.text), out);
    }
  }

  void finish(Deltas& out) override {
    if (state_ == State::kHead || state_ == State::kAfterType) give_up(out);
    call_.cut_off(buffer_.take_all().text(), out);
    call_.finish_content(out);
    state_ = State::kContent;
  }

 private:
  enum class State : unsigned char {
    kContent,
    kBetweenCalls,  // white space is frame
    kHead,          // the type, or V3.1's name
    kAfterType,     // V3's name, or the JSON of a V3.1 function that is called "function"
    kBeforeFence,
    kArguments,
  };

  // At a marker that ends whatever is open.
  void enter(State next, Deltas& out) {
    if (state_ == State::kHead || state_ == State::kAfterType) give_up(out);
    buffer_ = {};
    call_.end(out);
    state_ = next;
  }

  void push_text(TracedText text, Deltas& out) {
    if (state_ == State::kContent) return call_.content(std::move(text), out);
    buffer_.append(std::move(text));
    if (state_ == State::kBetweenCalls && !trimmed(buffer_.text()).empty()) return give_up(out);
    if (state_ == State::kHead && buffer_.text().size() > kMaxTypeOrNameBytes) return give_up(out);
    if (state_ == State::kAfterType) read_name(out);
    if (state_ == State::kBeforeFence) skip_fence();
    if (state_ != State::kArguments) return;
    const size_t certain = buffer_.text().size() - closing_frame_bytes(buffer_.text());
    call_.arguments(buffer_.take(certain).text(), out);
  }

  void end_head(Deltas& out) {
    const std::string head(trimmed(buffer_.text()));
    if (head.empty()) return give_up(out);
    if (head == kCallType) {
      type_ = buffer_.take_all();
      state_ = State::kAfterType;
      return;
    }
    buffer_ = {};
    begin_call(head, out);
  }

  void read_name(Deltas& out) {
    const std::string& text = buffer_.text();
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return;
    if (text[first] == '{') return begin_call(std::string(kCallType), out);
    const size_t end = text.find_first_of("\n`{", first);
    if (std::min(end, text.size()) - first > kMaxTypeOrNameBytes) return give_up(out);
    if (end == std::string::npos) return;
    const std::string name(trimmed(std::string_view(text).substr(first, end - first)));
    if (name.empty()) return give_up(out);
    buffer_.drop(end);
    begin_call(name, out);
  }

  void begin_call(const std::string& name, Deltas& out) {
    type_ = {};
    call_.begin(name, out);
    state_ = State::kBeforeFence;
  }

  // A fence is backticks and a language; the arguments begin on the next line, or at their brace.
  void skip_fence() {
    const std::string& text = buffer_.text();
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return;
    if (text[first] != '`') {
      buffer_.drop(first);
    } else {
      const size_t end = text.find_first_of("\n{", first);
      if (end == std::string::npos) return;
      buffer_.drop(text[end] == '\n' ? end + 1 : end);
    }
    state_ = State::kArguments;
  }

  // No call after all: what was read of it is content.
  void give_up(Deltas& out) {
    TracedText text = type_.take_all();
    text.append(buffer_.take_all());
    state_ = State::kContent;
    call_.content(std::move(text), out);
  }

  State state_ = State::kContent;
  CallBuilder call_;
  TracedText type_, buffer_;
};

}  // namespace

std::vector<Marker> deepseek_markers() {
  return {{MarkerKind::kCallsBegin, "<｜tool▁calls▁begin｜>", {}},
          {MarkerKind::kCallsEnd, "<｜tool▁calls▁end｜>", {}},
          {MarkerKind::kCallBegin, "<｜tool▁call▁begin｜>", {}},
          {MarkerKind::kCallEnd, "<｜tool▁call▁end｜>", {}},
          {MarkerKind::kCallSeparator, "<｜tool▁sep｜>", {}}};
}

std::unique_ptr<ToolParser> make_deepseek_parser() { return std::make_unique<DeepSeekParser>(); }

}  // namespace lockstep::serving::tool_parsing
