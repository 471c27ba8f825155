#include "lockstep/base/json.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/base/json_fault.h"

namespace lockstep {
namespace {

// Builds the document while it counts depth and looks for duplicate keys; refuses by returning false, which
// ends the parse. nlohmann's own builder searches an ordered object for every key that it adds, so a hostile
// object would take quadratic time; here keys are known to be new and are appended.
class LimitedBuilder {
 public:
  LimitedBuilder(std::string_view text, Json& document, const JsonLimits& limits)
      : text_(text), document_(document), limits_(limits) {}

  bool null() { return place(nullptr); }
  bool boolean(bool value) { return place(value); }
  bool number_integer(Json::number_integer_t value) { return place(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return place(value); }
  bool number_float(Json::number_float_t value, const std::string& /*text*/) { return place(value); }
  bool string(std::string& value) { return place(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) { return false; }  // no such thing in text

  bool start_object(std::size_t /*elements*/) { return open(Json::object()); }
  bool start_array(std::size_t /*elements*/) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (!open_.back().keys.insert(name).second) {
      refusal = fmt::format("the key \"{}\" stands twice in one object", name);
      return false;
    }
    open_.back().key = std::move(name);
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string& last_token, const Exception& why) {
    refusal = json_fault(text_, position, last_token, why);
    return false;
  }

  std::string refusal;

 private:
  // An object or array that is being filled. Its address is good: nothing is added to what holds it
  // meanwhile.
  struct Open {
    Json* value = nullptr;
    std::string key;  // of the next value
    std::unordered_set<std::string> keys;
  };
  using Members = std::vector<std::pair<const std::string, Json>>;  // what an ordered object is made of

  Json* add(Json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    Open& holder = open_.back();
    if (holder.value->is_array()) return &holder.value->emplace_back(std::move(value));
    Members& members = holder.value->get_ref<Json::object_t&>();
    return &members.emplace_back(std::move(holder.key), std::move(value)).second;
  }
  bool place(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json empty) {
    if (static_cast<int>(open_.size()) == limits_.max_depth) {
      refusal = fmt::format("nested deeper than {} levels", limits_.max_depth);
      return false;
    }
    Json* value = add(std::move(empty));
    open_.push_back({.value = value});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string_view text_;
  Json& document_;
  const JsonLimits& limits_;
  std::vector<Open> open_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return invalid_argument("", "JSON of {} bytes is larger than the limit of {} bytes", text.size(),
                            limits.max_bytes);
  Json root;
  LimitedBuilder builder(text, root, limits);
  if (!Json::sax_parse(text, &builder)) return invalid_argument("", "{}", builder.refusal);
  return root;
}

std::string to_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace lockstep
