// Calls whose arguments are written one by one in tags, not as JSON: the name, then keys and the text of
// their values.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/serving/tool_parsing/call_body.h"

namespace lockstep::serving::tool_parsing {
namespace {

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
  if (const Json& values = member(schema, "enum"); values.is_array()) {
    // Space around one of the values is the model's layout, unless it is the value's own.
    const std::string_view bare = trimmed(text);
    for (const std::string_view candidate : {std::string_view(text), bare})
      for (const Json& value : values)
        if (value.is_string() && value.get_ref<const std::string&>() == candidate) return to_text(value);
    for (const Json& value : values)
      if (const auto parsed = parse_json(bare); parsed && !value.is_string() && *parsed == value)
        return std::string(bare);
  }
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

// What stands next in the text of a call.
struct Scan {
  enum class Kind : unsigned char {
    kMore,       // undecided: more text is needed
    kBroken,     // nothing that belongs here
    kParameter,  // a key and its value
    kEnd,        // the call's own end
  };
  Kind kind = Kind::kMore;
  size_t num_bytes = 0;  // read, of kParameter and kEnd
  std::string key, value;
  enum class ValueIs : unsigned char { kByType, kText, kJson } value_is = ValueIs::kByType;
};

struct NameScan {
  enum class Kind : unsigned char { kMore, kRefused, kName } kind = Kind::kMore;
  size_t num_bytes = 0;
  std::string name;
};

// Whether `text` begins with `mark`, or may once there is more of it.
enum class Begins : unsigned char { kYes, kMaybe, kNo };
Begins begins_with(std::string_view text, std::string_view mark) {
  if (text.starts_with(mark)) return Begins::kYes;
  return mark.starts_with(text) ? Begins::kMaybe : Begins::kNo;
}

class ParameterBody : public SelfEndingBody {
 public:
  explicit ParameterBody(const Json& tools) : tools_(tools) {}

  void push(std::string_view text, CallBuilder& call, Deltas& out) override {
    if (phase_ == Phase::kRefused) return;
    text_ += text;
    if (phase_ == Phase::kName) read_name(call, out);
    while (phase_ == Phase::kParameters && read_parameter(call, out)) {
    }
  }

  void close(CallBuilder& call, Deltas& out) override {
    if (phase_ == Phase::kName) read_name_at_end(call, out);
    if (phase_ == Phase::kParameters && trimmed(text_).empty()) end_arguments(call, out);
  }

  bool refused() const override { return phase_ == Phase::kRefused; }
  bool done() const override { return phase_ == Phase::kDone; }
  std::string take_rest() override { return std::exchange(text_, {}); }

 protected:
  virtual NameScan scan_name(std::string_view text) const = 0;
  // `text` does not begin with white space. The place of the value's end is searched for from `searched`, and
  // how far that came is left there.
  virtual Scan scan_parameter(std::string_view text, size_t& searched) const = 0;
  // At the end of the call's text, where the name may be all that there is.
  virtual NameScan scan_name_at_end(std::string_view /*text*/) const { return {}; }

  // The end of a value that begins at `begin`: where `mark` stands, or npos.
  static size_t find_end(std::string_view text, size_t begin, std::string_view mark, size_t& searched) {
    const size_t end = text.find(mark, std::max(begin, searched));
    searched = end == std::string_view::npos ? text.size() - std::min(text.size(), mark.size() - 1) : 0;
    return end;
  }

 private:
  enum class Phase : unsigned char { kName, kParameters, kDone, kRefused };

  void read_name(CallBuilder& call, Deltas& out) { take(scan_name(text_), call, out); }
  void read_name_at_end(CallBuilder& call, Deltas& out) { take(scan_name_at_end(text_), call, out); }

  void take(NameScan scan, CallBuilder& call, Deltas& out) {
    if (scan.kind == NameScan::Kind::kMore) return;
    phase_ = scan.kind == NameScan::Kind::kName ? Phase::kParameters : Phase::kRefused;
    if (phase_ == Phase::kRefused) return;
    properties_ = properties_of(tools_, scan.name);
    text_.erase(0, scan.num_bytes);
    call.begin(std::move(scan.name), out);
  }

  // Reads one parameter or the end; false when more text is needed or none is wanted.
  bool read_parameter(CallBuilder& call, Deltas& out) {
    text_.erase(0, std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
    if (text_.empty()) return false;
    Scan scan = scan_parameter(text_, searched_);
    switch (scan.kind) {
      case Scan::Kind::kMore:
        return false;
      case Scan::Kind::kBroken:
        break_off(call, out);
        return false;
      case Scan::Kind::kEnd:
        text_.erase(0, scan.num_bytes);
        end_arguments(call, out);
        return false;
      case Scan::Kind::kParameter:
        break;
    }
    text_.erase(0, scan.num_bytes);
    const std::string json = json_of(scan);
    call.arguments((any_ ? ", " : "{") + to_text(Json(scan.key)) + ": " + json, out);
    any_ = true;
    return true;
  }

  std::string json_of(Scan& scan) const {
    if (scan.value_is == Scan::ValueIs::kByType)
      return to_json(std::move(scan.value), member(properties_, scan.key));
    if (scan.value_is == Scan::ValueIs::kJson && parse_json(scan.value).ok())
      return std::string(trimmed(scan.value));
    return to_text(Json(std::move(scan.value)));
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

class FunctionBody : public ParameterBody {
 public:
  using ParameterBody::ParameterBody;

 private:
  static constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
  static constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";

  NameScan scan_name(std::string_view text) const override {
    const size_t end = text.find('>');
    if (begins_with(text, kFunction) == Begins::kNo || std::min(end, text.size()) > kMaxNameBytes)
      return {.kind = NameScan::Kind::kRefused, .name = {}};
    if (end == std::string_view::npos) return {};
    const std::string name(trimmed(text.substr(kFunction.size(), end - kFunction.size())));
    return {name.empty() ? NameScan::Kind::kRefused : NameScan::Kind::kName, end + 1, name};
  }

  Scan scan_parameter(std::string_view text, size_t& searched) const override {
    if (text.starts_with(kFunctionEnd))
      return {.kind = Scan::Kind::kEnd, .num_bytes = kFunctionEnd.size(), .key = {}, .value = {}};
    if (!text.starts_with(kParameter)) {
      const bool undecided = kParameter.starts_with(text) || kFunctionEnd.starts_with(text);
      return {.kind = undecided ? Scan::Kind::kMore : Scan::Kind::kBroken, .key = {}, .value = {}};
    }
    const size_t key_end = text.find('>');
    if (key_end == std::string_view::npos) return {};
    const size_t value_end = find_end(text, key_end + 1, kParameterEnd, searched);
    if (value_end == std::string_view::npos) return {};
    std::string_view value = text.substr(key_end + 1, value_end - key_end - 1);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    return {.kind = Scan::Kind::kParameter,
            .num_bytes = value_end + kParameterEnd.size(),
            .key = std::string(trimmed(text.substr(kParameter.size(), key_end - kParameter.size()))),
            .value = std::string(value)};
  }
};

class GlmBody : public ParameterBody {
 public:
  using ParameterBody::ParameterBody;

 private:
  static constexpr std::string_view kKey = "<arg_key>", kKeyEnd = "</arg_key>";
  static constexpr std::string_view kValue = "<arg_value>", kValueEnd = "</arg_value>";

  NameScan scan_name(std::string_view text) const override {
    const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    const size_t end = text.find_first_of("\n<", first);
    if (std::min(end, text.size()) - first > kMaxNameBytes)
      return {.kind = NameScan::Kind::kRefused, .name = {}};
    return end == std::string_view::npos ? NameScan{} : named(text.substr(first, end - first), end);
  }
  NameScan scan_name_at_end(std::string_view text) const override { return named(text, text.size()); }

  // A name has no space in it: text between the tags is no call.
  static NameScan named(std::string_view text, size_t end) {
    const std::string_view name = trimmed(text);
    const bool is_name = !name.empty() && name.find_first_of(" \t\r\n{}\"") == std::string_view::npos;
    return {is_name ? NameScan::Kind::kName : NameScan::Kind::kRefused, end, std::string(name)};
  }

  Scan scan_parameter(std::string_view text, size_t& searched) const override {
    if (const Begins key = begins_with(text, kKey); key != Begins::kYes)
      return {
          .kind = key == Begins::kMaybe ? Scan::Kind::kMore : Scan::Kind::kBroken, .key = {}, .value = {}};
    const size_t key_end = text.find(kKeyEnd);
    if (key_end == std::string_view::npos) return {};
    const size_t open = text.find_first_not_of(" \t\r\n", key_end + kKeyEnd.size());
    if (open == std::string_view::npos) return {};
    if (const Begins value = begins_with(text.substr(open), kValue); value != Begins::kYes)
      return {
          .kind = value == Begins::kMaybe ? Scan::Kind::kMore : Scan::Kind::kBroken, .key = {}, .value = {}};
    const size_t begin = open + kValue.size();
    const size_t end = find_end(text, begin, kValueEnd, searched);
    if (end == std::string_view::npos) return {};
    return {.kind = Scan::Kind::kParameter,
            .num_bytes = end + kValueEnd.size(),
            .key = std::string(trimmed(text.substr(kKey.size(), key_end - kKey.size()))),
            .value = std::string(text.substr(begin, end - begin))};
  }
};

class DsmlBody : public ParameterBody {
 public:
  using ParameterBody::ParameterBody;

 private:
  static constexpr std::string_view kInvoke = "<｜DSML｜invoke name=\"", kInvokeEnd = "</｜DSML｜invoke>";
  static constexpr std::string_view kParameter = "<｜DSML｜parameter name=\"",
                                    kParameterEnd = "</｜DSML｜parameter>";

  NameScan scan_name(std::string_view text) const override {
    if (const Begins begins = begins_with(text, kInvoke); begins != Begins::kYes)
      return {.kind = begins == Begins::kMaybe ? NameScan::Kind::kMore : NameScan::Kind::kRefused,
              .name = {}};
    const size_t end = text.find("\">", kInvoke.size());
    if (std::min(end, text.size()) > kMaxNameBytes) return {.kind = NameScan::Kind::kRefused, .name = {}};
    if (end == std::string_view::npos) return {};
    const std::string name(trimmed(text.substr(kInvoke.size(), end - kInvoke.size())));
    return {name.empty() ? NameScan::Kind::kRefused : NameScan::Kind::kName, end + 2, name};
  }

  Scan scan_parameter(std::string_view text, size_t& searched) const override {
    if (text.starts_with(kInvokeEnd))
      return {.kind = Scan::Kind::kEnd, .num_bytes = kInvokeEnd.size(), .key = {}, .value = {}};
    if (!text.starts_with(kParameter)) {
      const bool undecided = kParameter.starts_with(text) || kInvokeEnd.starts_with(text);
      return {.kind = undecided ? Scan::Kind::kMore : Scan::Kind::kBroken, .key = {}, .value = {}};
    }
    const size_t tag_end = text.find('>');
    if (tag_end == std::string_view::npos) return {};
    const size_t value_end = find_end(text, tag_end + 1, kParameterEnd, searched);
    if (value_end == std::string_view::npos) return {};
    const std::string_view attributes = text.substr(kParameter.size(), tag_end - kParameter.size());
    const size_t key_end = attributes.find('"');
    if (key_end == std::string_view::npos) return {.kind = Scan::Kind::kBroken, .key = {}, .value = {}};
    const std::string_view rest = attributes.substr(key_end);
    Scan scan{.kind = Scan::Kind::kParameter,
              .num_bytes = value_end + kParameterEnd.size(),
              .key = std::string(attributes.substr(0, key_end)),
              .value = std::string(text.substr(tag_end + 1, value_end - tag_end - 1))};
    if (rest.find("string=\"true\"") != std::string_view::npos) scan.value_is = Scan::ValueIs::kText;
    if (rest.find("string=\"false\"") != std::string_view::npos) scan.value_is = Scan::ValueIs::kJson;
    return scan;
  }
};

}  // namespace

std::unique_ptr<CallBody> make_function_body(const Json& tools) {
  return std::make_unique<FunctionBody>(tools);
}
std::unique_ptr<CallBody> make_glm_body(const Json& tools) { return std::make_unique<GlmBody>(tools); }
std::unique_ptr<SelfEndingBody> make_dsml_body(const Json& tools) {
  return std::make_unique<DsmlBody>(tools);
}

}  // namespace lockstep::serving::tool_parsing
