// {"name": "f", "arguments": {...}}: members in any order; arguments that follow the name are handed on as
// they come.
#include <string>
#include <utility>

#include "lockstep/serving/tool_parsing/call_body.h"
#include "lockstep/serving/tool_parsing/json_value.h"

namespace lockstep::serving::tool_parsing {
namespace {

constexpr size_t kMaxHeadBytes = size_t{16} << 10;  // before the arguments begin to be handed on
constexpr size_t kNotYet = std::string::npos;

size_t skip_space(std::string_view text, size_t at) {
  const size_t next = text.find_first_not_of(" \t\r\n", at);
  return next == std::string_view::npos ? text.size() : next;
}

// The end of the value at `at`, kNotYet when it is not all there.
size_t value_end(std::string_view text, size_t at) {
  ValueEnd end;
  const size_t length = end.advance(text.substr(at));
  return end.done() ? at + length : kNotYet;
}

class JsonBody : public CallBody {
 public:
  explicit JsonBody(NameCheck accepts) : accepts_(std::move(accepts)) {}

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
        if (accepts_ && !accepts_(name)) return false;
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

  const NameCheck accepts_;
  Phase phase_ = Phase::kHead;
  std::string head_;
  ValueEnd end_;
};

}  // namespace

std::unique_ptr<CallBody> make_json_body(NameCheck accepts) {
  return std::make_unique<JsonBody>(std::move(accepts));
}

}  // namespace lockstep::serving::tool_parsing
