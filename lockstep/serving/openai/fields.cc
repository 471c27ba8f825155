#include "lockstep/serving/openai/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep::serving::openai {
namespace {

// 16 and 16.0; what lies beyond the type comes back as its nearest end. None: no whole number.
std::optional<int64_t> whole_number(const Json& value) {
  using Limits = std::numeric_limits<int64_t>;
  if (value.is_number_unsigned())
    return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), Limits::max()));
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (number != std::trunc(number)) return std::nullopt;
  if (number >= 0x1p63) return Limits::max();
  return number < -0x1p63 ? Limits::min() : static_cast<int64_t>(number);
}

}  // namespace

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object_.is_object()) return;
  const std::string name = path_.empty() ? "the request body" : path_;
  complain(invalid_argument(path_, "{} must be a JSON object, not {}", name, kind_of(object_)));
}

const Json* Fields::find(std::string_view key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> Fields::number(std::string_view key, double low, double high) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return wrong_type(key, "a number", *value), std::nullopt;
  const double number = value->get<double>();
  if (number >= low && number <= high) return number;
  refuse(key, fmt::format("must be between {:g} and {:g}, but is {:g}", low, high, number));
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t low, int64_t high) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto whole = whole_number(*value);
  if (!whole) return wrong_type(key, "an integer", *value), std::nullopt;
  if (*whole >= low && *whole <= high) return whole;
  refuse(key, fmt::format("must be between {} and {}, but is {}", low, high, to_text(*value)));
  return std::nullopt;
}

std::optional<bool> Fields::flag(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return wrong_type(key, "true or false", *value), std::nullopt;
  return value->get<bool>();
}

std::optional<std::string> Fields::text(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong_type(key, "a string", *value), std::nullopt;
  return value->get<std::string>();
}

const Json* Fields::array(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_array()) return value;
  return wrong_type(key, "an array", *value), nullptr;
}

const Json* Fields::object(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  return wrong_type(key, "an object", *value), nullptr;
}

void Fields::refuse(std::string_view key, std::string_view reason) {
  const std::string path = path_of(key);
  complain(invalid_argument(path, "'{}' {}", path, reason));
}

void Fields::complain(Error error) {
  if (!error_) error_ = std::move(error);
}

std::string Fields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

Status Fields::status() const {
  if (error_) return *error_;
  return Done{};
}

void Fields::wrong_type(std::string_view key, std::string_view wanted, const Json& value) {
  refuse(key, fmt::format("must be {}, not {}", wanted, kind_of(value)));
}

Error renamed(Error error, std::span<const FieldName> names) {
  for (const FieldName& name : names) {
    if (!error.field.starts_with(name.from)) continue;
    const std::string rest = error.field.substr(name.from.size());
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') continue;
    const std::string old = fmt::format("'{}'", error.field);
    error.field = std::string(name.to) + rest;
    const std::string now = fmt::format("'{}'", error.field);
    for (size_t at = 0; (at = error.message.find(old, at)) != std::string::npos; at += now.size())
      error.message.replace(at, old.size(), now);
    break;
  }
  return error;
}

std::string_view kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    default:
      return "no JSON value";
  }
}

}  // namespace lockstep::serving::openai
