#include "lockstep/planning/json_fields.h"

#include <algorithm>

namespace lockstep::planning {

Fields::Fields(const Json& parent, const char* key) : name_(key) {
  const auto at = parent.is_object() ? parent.find(key) : parent.end();
  if (at == parent.end() || !at->is_object()) {
    fail(fmt::format("there is no object \"{}\"", key));
  } else {
    object_ = &*at;
  }
}

Fields Fields::of(const Json& object, std::string name) {
  Fields fields(std::move(name));
  if (object.is_object()) {
    fields.object_ = &object;
  } else {
    fields.fail(fmt::format("\"{}\" is not an object", fields.name_));
  }
  return fields;
}

int64_t Fields::integer(const char* key, int64_t least, int64_t most) {
  const Json* value = find(key);
  if (value == nullptr) return least;
  const bool fits = value->is_number_integer() && value->get<int64_t>() >= least &&
                    value->get<int64_t>() <= most &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(most));
  if (fits) return value->get<int64_t>();
  refuse(key, *value, fmt::format("a number from {} to {}", least, most));
  return least;
}

double Fields::number(const char* key, double least, double most) {
  const Json* value = find(key);
  if (value == nullptr) return least;
  if (value->is_number() && value->get<double>() >= least && value->get<double>() <= most)
    return value->get<double>();
  refuse(key, *value, fmt::format("a number from {} to {}", least, most));
  return least;
}

bool Fields::flag(const char* key) {
  const Json* value = find(key);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, *value, "true or false");
  return false;
}

std::string Fields::text(const char* key) {
  const Json* value = find(key);
  if (value == nullptr) return "";
  if (value->is_string() && value->get_ref<const std::string&>().size() <= kMostText)
    return value->get<std::string>();
  refuse(key, *value, "a short text");
  return "";
}

std::vector<int32_t> Fields::numbers(const char* key) {
  std::vector<int32_t> found;
  const Json* value = find(key);
  if (value == nullptr) return found;
  if (!value->is_array() || value->size() > kMostCount) {
    refuse(key, *value, "a list of numbers");
    return found;
  }
  for (const Json& number : *value) {
    if (!number.is_number_integer() || number.get<int64_t>() < 0 || number.get<int64_t>() > kMostCount ||
        (number.is_number_unsigned() && number.get<uint64_t>() > kMostCount)) {
      fail(fmt::format("\"{}\" of \"{}\" holds what is not a number from 0 to {}", key, name_, kMostCount));
      return found;
    }
    found.push_back(number.get<int32_t>());
  }
  return found;
}

std::vector<std::string> Fields::texts(const char* key) {
  std::vector<std::string> found;
  const Json* value = find(key);
  if (value == nullptr) return found;
  bool fits = value->is_array() && value->size() <= kMostText;
  if (fits)
    for (const Json& text : *value)
      fits = fits && text.is_string() && text.get_ref<const std::string&>().size() <= kMostText;
  if (!fits) {
    refuse(key, *value, "a list of short texts");
    return found;
  }
  for (const Json& text : *value) found.push_back(text.get<std::string>());
  return found;
}

void Fields::only(std::initializer_list<std::string_view> keys) {
  if (object_ == nullptr) return;
  for (const auto& [key, value] : object_->items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      fail(fmt::format("\"{}\" of \"{}\" is not known here; it is {}", key.substr(0, 40), name_,
                       lockstep::to_text(value).substr(0, 40)));
}

const Json* Fields::find(const char* key) {
  if (object_ == nullptr) return nullptr;
  const auto at = object_->find(key);
  if (at != object_->end()) return &*at;
  fail(fmt::format("there is no \"{}\" in \"{}\"", key, name_));
  return nullptr;
}

void Fields::refuse(const char* key, const Json& value, const std::string& should) {
  fail(fmt::format("\"{}\" of \"{}\" is not {}: it is {}", key, name_, should,
                   lockstep::to_text(value).substr(0, 40)));
}

}  // namespace lockstep::planning
