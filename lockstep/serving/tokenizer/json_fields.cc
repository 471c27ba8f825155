#include "lockstep/serving/tokenizer/json_fields.h"

#include <utility>

#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

const Json& null_value() {
  static const Json value;
  return value;
}
const Json& empty_array() {
  static const Json value = Json::array();
  return value;
}

}  // namespace

JsonFields::JsonFields(const Json& value, std::string path) : object_(value), path_(std::move(path)) {
  if (!object_.is_object())
    complain(invalid_argument(path_, "{} is {}, not an object", path_, excerpt(object_)));
}

const Json* JsonFields::find(std::string_view key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

std::string JsonFields::text(std::string_view key) {
  const Json* value = find(key);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  complain_about(key, "text");
  return {};
}

bool JsonFields::flag(std::string_view key) {
  const Json* value = find(key);
  if (value != nullptr && value->is_boolean()) return value->get<bool>();
  complain_about(key, "true or false");
  return false;
}

int64_t JsonFields::integer(std::string_view key) {
  const Json* value = find(key);
  if (value != nullptr && value->is_number_integer()) return value->get<int64_t>();
  complain_about(key, "an integer");
  return 0;
}

const Json& JsonFields::array(std::string_view key) {
  const Json* value = find(key);
  if (value != nullptr && value->is_array()) return *value;
  complain_about(key, "an array");
  return empty_array();
}

bool JsonFields::flag_or(std::string_view key, bool fallback) {
  return any(key).is_null() ? fallback : flag(key);
}

std::string JsonFields::text_or(std::string_view key, std::string_view fallback) {
  return any(key).is_null() ? std::string(fallback) : text(key);
}

const Json& JsonFields::any(std::string_view key) const {
  const Json* value = find(key);
  return value == nullptr ? null_value() : *value;
}

void JsonFields::complain(Error error) {
  if (ok()) error_ = std::move(error);
}

std::string JsonFields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonFields::complain_about(std::string_view key, std::string_view wanted) {
  const std::string name = path_of(key);
  const Json* value = find(key);
  complain(value == nullptr
               ? invalid_argument(name, "{} is missing: it must be {}", name, wanted)
               : invalid_argument(name, "{} is {}: it must be {}", name, excerpt(*value), wanted));
}

std::string excerpt(const Json& value) {
  constexpr size_t kMaxBytes = 60;
  if (value.is_object()) return fmt::format("an object of {} fields", value.size());
  if (value.is_array()) return fmt::format("an array of {} entries", value.size());
  std::string text = to_text(value);
  if (text.size() <= kMaxBytes) return text;
  return text.substr(0, boundary_at_or_before(text, kMaxBytes)) + "...";
}

Result<std::string> component_type(const Json& value, const std::string& path) {
  if (value.is_null()) return std::string();
  JsonFields fields(value, path);
  std::string type = fields.text("type");
  if (!fields.ok()) return fields.error();
  if (type.empty()) return invalid_argument(fields.path_of("type"), "{} is empty", fields.path_of("type"));
  return type;
}

}  // namespace lockstep::serving::tokenizing
