// <function=f> <parameter=key> value </parameter> ... </function>: values are bare text, made JSON by the
// tool's schema.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/serving/tool_parsing/call_body.h"

namespace lockstep::serving::tool_parsing {
namespace {

constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr size_t kMaxNameBytes = 512;

// The member of an object, null when there is none.
const Json& member(const Json& value, std::string_view key) {
  static const Json null;
  if (!value.is_object()) return null;
  const auto found = value.find(key);
  return found == value.end() ? null : *found;
}

const Json& properties_of(const Json& tools, std::string_view function) {
  if (tools.is_array()) {
    for (const Json& tool : tools) {
      const Json& declared = member(tool, "function");
      if (member(declared, "name") == function) return member(member(declared, "parameters"), "properties");
    }
  }
  return member(tools, "");
}

// The JSON types that a property's schema allows; none when it does not say.
std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> types;
  const Json& type = member(schema, "type");
  if (type.is_string()) types.push_back(type.get<std::string>());
  if (type.is_array())
    for (const Json& one : type)
      if (one.is_string()) types.push_back(one.get<std::string>());
  for (const char* choice : {"anyOf", "oneOf"})
    if (const Json& options = member(schema, choice); options.is_array())
      for (const Json& option : options)
        for (std::string& allowed : types_of(option)) types.push_back(std::move(allowed));
  return types;
}

bool contains(const std::vector<std::string>& types, std::string_view type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

// The text of a value as the JSON that the schema asks for; a string where it fits nothing else.
std::string to_json(std::string text, const Json& schema) {
  const std::vector<std::string> types = types_of(schema);
  if (!types.empty() && !contains(types, "string")) {
    const std::string_view bare = trimmed(text);
    if (bare == "True" && contains(types, "boolean")) return "true";
    if (bare == "False" && contains(types, "boolean")) return "false";
    if (bare == "None") return "null";
    if (const auto value = parse_json(bare); value.ok()) return std::string(bare);
  }
  return to_text(Json(std::move(text)));
}

class FunctionBody : public CallBody {
 public:
  explicit FunctionBody(const Json& tools) : tools_(tools) {}

  void push(std::string_view text, CallBuilder& call, Deltas& out) override {
    if (phase_ == Phase::kDone || phase_ == Phase::kRefused) return;
    text_ += text;
    if (phase_ == Phase::kName) read_name(call, out);
    while (phase_ == Phase::kParameters && read_parameter(call, out)) {
    }
  }

  void close(CallBuilder& call, Deltas& out) override {
    if (phase_ == Phase::kParameters && trimmed(text_).empty()) end_arguments(call, out);
  }

  bool refused() const override { return phase_ == Phase::kRefused; }

 private:
  enum class Phase : unsigned char { kName, kParameters, kDone, kRefused };

  void read_name(CallBuilder& call, Deltas& out) {
    const size_t compared = std::min(text_.size(), kFunction.size());
    const size_t end = text_.find('>');
    if (std::string_view(text_).substr(0, compared) != kFunction.substr(0, compared) ||
        std::min(end, text_.size()) > kMaxNameBytes) {
      phase_ = Phase::kRefused;
      return;
    }
    if (end == std::string::npos) return;
    const std::string name(trimmed(std::string_view(text_).substr(kFunction.size(), end - kFunction.size())));
    phase_ = name.empty() ? Phase::kRefused : Phase::kParameters;
    if (name.empty()) return;
    properties_ = properties_of(tools_, name);
    text_.erase(0, end + 1);
    call.begin(name, out);
  }

  // Reads one parameter or the end of the function; false when more text is needed or none is wanted.
  bool read_parameter(CallBuilder& call, Deltas& out) {
    text_.erase(0, std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
    if (text_.empty()) return false;
    if (text_.starts_with(kFunctionEnd)) {
      end_arguments(call, out);
      return false;
    }
    if (!text_.starts_with(kParameter)) {
      const bool undecided = kParameter.starts_with(text_) || kFunctionEnd.starts_with(text_);
      if (!undecided) break_off(call, out);
      return false;
    }
    const size_t key_end = text_.find('>');
    if (key_end == std::string::npos) return false;
    const size_t value_end = text_.find(kParameterEnd, std::max(key_end + 1, searched_));
    if (value_end == std::string::npos) {
      searched_ = text_.size() - std::min(text_.size(), kParameterEnd.size() - 1);
      return false;
    }
    const std::string key(
        trimmed(std::string_view(text_).substr(kParameter.size(), key_end - kParameter.size())));
    std::string value = text_.substr(key_end + 1, value_end - key_end - 1);
    if (value.starts_with('\n')) value.erase(0, 1);
    if (value.ends_with('\n')) value.pop_back();
    text_.erase(0, value_end + kParameterEnd.size());
    searched_ = 0;
    const std::string json = to_json(std::move(value), member(properties_, key));
    call.arguments((any_ ? ", " : "{") + to_text(Json(key)) + ": " + json, out);
    any_ = true;
    return true;
  }

  void end_arguments(CallBuilder& call, Deltas& out) {
    call.arguments(any_ ? "}" : "{}", out);
    phase_ = Phase::kDone;
  }

  // Text where no text may stand: the arguments stay an open object, so that nobody takes the call for
  // complete.
  void break_off(CallBuilder& call, Deltas& out) {
    if (!any_) call.arguments("{", out);
    phase_ = Phase::kDone;
  }

  const Json& tools_;
  Json properties_;
  Phase phase_ = Phase::kName;
  bool any_ = false;
  size_t searched_ = 0;
  std::string text_;
};

}  // namespace

std::unique_ptr<CallBody> make_function_body(const Json& tools) {
  return std::make_unique<FunctionBody>(tools);
}

}  // namespace lockstep::serving::tool_parsing
