// {"name": "f", "arguments": {...}}: members in any order; arguments that follow the name are handed on as
// they come.
#include <string>
#include <utility>

#include "lockstep/serving/tool_parsing/call_body.h"

namespace lockstep::serving::tool_parsing {
namespace {

constexpr size_t kMaxHeadBytes = size_t{16} << 10;  // before the arguments begin to be handed on
constexpr size_t kNotYet = std::string::npos;

size_t skip_space(std::string_view text, size_t at) {
  const size_t next = text.find_first_not_of(" \t\r\n", at);
  return next == std::string_view::npos ? text.size() : next;
}

// Finds where one JSON value ends, over any number of pieces.
class ValueEnd {
 public:
  // The number of bytes of `piece` that belong to the value.
  size_t advance(std::string_view piece) {
    size_t at = 0;
    while (at < piece.size() && !done_) done_ = step(piece[at]) == Next::kTaken ? (++at, closed_) : true;
    return at;
  }
  bool done() const { return done_; }

 private:
  enum class Next : unsigned char { kTaken, kNotOurs };
  Next step(char c) {
    if (in_string_) {
      const bool ends = c == '"' && !escaped_;
      escaped_ = c == '\\' && !escaped_;
      if (ends) in_string_ = false, closed_ = depth_ == 0;
      return Next::kTaken;
    }
    if (depth_ == 0 && bare_ && std::string_view(",]} \t\r\n").find(c) != std::string_view::npos)
      return Next::kNotOurs;
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      closed_ = --depth_ <= 0;
    } else if (depth_ == 0) {
      bare_ = true;  // a number, true, false, null
    }
    return Next::kTaken;
  }
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, bare_ = false, closed_ = false, done_ = false;
};

// The end of the value at `at`, kNotYet when it is not all there.
size_t value_end(std::string_view text, size_t at) {
  ValueEnd end;
  const size_t length = end.advance(text.substr(at));
  return end.done() ? at + length : kNotYet;
}

class JsonBody : public CallBody {
 public:
  void push(std::string_view text, CallBuilder& call, Deltas& out) override {
    if (phase_ == Phase::kHead) {
      head_ += text;
      if (!read_head(call, out)) phase_ = Phase::kRefused;
      if (phase_ == Phase::kHead && head_.size() > kMaxHeadBytes) phase_ = Phase::kRefused;
      return;
    }
    if (phase_ == Phase::kArguments) stream_arguments(text, call, out);
  }

  void close(CallBuilder& /*call*/, Deltas& /*out*/) override {}
  bool refused() const override { return phase_ == Phase::kRefused; }

 private:
  enum class Phase : unsigned char { kHead, kArguments, kDone, kRefused };

  // Walks the members from the start; false when this is no call.
  bool read_head(CallBuilder& call, Deltas& out) {
    std::string name, arguments;
    size_t at = skip_space(head_, 1);
    while (at < head_.size()) {
      if (at >= kMaxHeadBytes) return false;
      if (head_[at] == '}') {
        if (!name.empty()) begin(name, arguments, call, out);
        return !name.empty();
      }
      if (head_[at] == ',') {
        at = skip_space(head_, at + 1);
        continue;
      }
      if (head_[at] != '"') return false;
      const size_t key_end = value_end(head_, at);
      if (key_end == kNotYet) return true;
      const std::string key = head_.substr(at + 1, key_end - at - 2);
      at = skip_space(head_, key_end);
      if (at == head_.size()) return true;
      if (head_[at] != ':') return false;
      at = skip_space(head_, at + 1);
      if (at == head_.size()) return true;
      const bool is_arguments = key == "arguments" || key == "parameters";
      if (is_arguments && !name.empty() && head_[at] == '{' && at < kMaxHeadBytes) {
        begin(name, {}, call, out);
        phase_ = Phase::kArguments;
        stream_arguments(std::string_view(head_).substr(at), call, out);
        return true;
      }
      const size_t end = value_end(head_, at);
      if (end == kNotYet) return true;
      if (end == at) return false;
      const auto value = parse_json(std::string_view(head_).substr(at, end - at));
      if (!value) return false;
      if (key == "name") {
        if (!value->is_string() || value->get_ref<const std::string&>().empty()) return false;
        name = value->get<std::string>();
      } else if (is_arguments) {
        arguments = value->is_string() ? value->get<std::string>() : head_.substr(at, end - at);
      }
      at = skip_space(head_, end);
    }
    return true;
  }

  void begin(const std::string& name, std::string arguments, CallBuilder& call, Deltas& out) {
    phase_ = Phase::kDone;
    call.begin(name, out);
    call.arguments(std::move(arguments), out);
  }

  void stream_arguments(std::string_view text, CallBuilder& call, Deltas& out) {
    const size_t length = end_.advance(text);
    call.arguments(std::string(text.substr(0, length)), out);
    if (end_.done()) phase_ = Phase::kDone;
  }

  Phase phase_ = Phase::kHead;
  std::string head_;
  ValueEnd end_;
};

}  // namespace

std::unique_ptr<CallBody> make_json_body() { return std::make_unique<JsonBody>(); }

}  // namespace lockstep::serving::tool_parsing
