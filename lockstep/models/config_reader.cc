#include "lockstep/models/config_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace lockstep::models {

const Json* ConfigReader::find(const char* key) const {
  const auto at = config_.find(key);
  return at == config_.end() || at->is_null() ? nullptr : &*at;
}

int64_t ConfigReader::integer(const char* key, int64_t least, int64_t most) {
  if (find(key) == nullptr) {
    problems_.push_back(fmt::format("{} is missing", key));
    return least;
  }
  return integer_or(key, least, least, most);
}

int64_t ConfigReader::integer_or(const char* key, int64_t absent, int64_t least, int64_t most) {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_number_integer() || value->get<int64_t>() < least || value->get<int64_t>() > most) {
    problems_.push_back(
        fmt::format("{} is {}, not an integer from {} to {}", key, to_text(*value), least, most));
    return least;
  }
  return value->get<int64_t>();
}

double ConfigReader::number_or(const char* key, double absent, double least, double most) {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= least && number <= most)) {
    problems_.push_back(
        fmt::format("{} is {}, not a number from {} to {}", key, to_text(*value), least, most));
    return absent;
  }
  return number;
}

bool ConfigReader::flag_or(const char* key, bool absent) {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean())
    problems_.push_back(fmt::format("{} is {}, not true or false", key, to_text(*value)));
  return value->is_boolean() ? value->get<bool>() : absent;
}

std::string ConfigReader::text_or(const char* key, const std::string& absent) {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_string()) problems_.push_back(fmt::format("{} is {}, not a string", key, to_text(*value)));
  return value->is_string() ? value->get<std::string>() : absent;
}

const Json* ConfigReader::object(const char* key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  problems_.push_back(fmt::format("{} is {}, not an object", key, to_text(*value)));
  return nullptr;
}

std::vector<int64_t> ConfigReader::integers(const char* key) {
  std::vector<int64_t> list;
  const Json* value = find(key);
  if (value == nullptr) return list;
  const bool fits = value->is_array() && std::all_of(value->begin(), value->end(),
                                                     [](const Json& one) { return one.is_number_integer(); });
  if (!fits) {
    problems_.push_back(fmt::format("{} is {}, not a list of integers", key, to_text(*value)));
    return list;
  }
  for (const Json& one : *value) list.push_back(one.get<int64_t>());
  return list;
}

std::vector<std::string> ConfigReader::texts(const char* key) {
  std::vector<std::string> list;
  const Json* value = find(key);
  if (value == nullptr) return list;
  const bool fits = value->is_array() && std::all_of(value->begin(), value->end(),
                                                     [](const Json& one) { return one.is_string(); });
  if (!fits) {
    problems_.push_back(fmt::format("{} is {}, not a list of strings", key, to_text(*value)));
    return list;
  }
  for (const Json& one : *value) list.push_back(one.get<std::string>());
  return list;
}

void ConfigReader::require(const char* key, const std::string& value,
                           std::initializer_list<const char*> handled) {
  if (std::any_of(handled.begin(), handled.end(), [&](const char* one) { return value == one; })) return;
  problems_.push_back(
      fmt::format("{} \"{}\" is not handled (handled: {})", key, value, fmt::join(handled, ", ")));
}

void ConfigReader::refuse(const char* key, const std::string& why) {
  problems_.push_back(fmt::format("{} {}", key, why));
}

Status ConfigReader::status() const {
  if (problems_.empty()) return Done{};
  return invalid_argument("config.json", "config.json: {}", fmt::join(problems_, "; "));
}

}  // namespace lockstep::models
