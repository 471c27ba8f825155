#include "lockstep/serving/constraints/schema_check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/serving/constraints/regex_check.h"

namespace lockstep::serving::constraints {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxPlaces = 256;   // that are left out of a schema
constexpr int64_t kMaxCount = 4096;  // of items and characters
constexpr int64_t kMaxInteger = int64_t{1} << 53;

// Say something to people, not about values.
const std::set<std::string_view> kAnnotations = {
    "title",      "description", "default",   "examples", "$schema",     "$id",   "$comment",
    "deprecated", "readOnly",    "writeOnly", "$defs",    "definitions", "strict"};
const std::set<std::string_view> kTypes = {"string", "number", "integer", "boolean",
                                           "null",   "object", "array"};
// What is asserted of values of one type.
const std::set<std::string_view> kOfObjects = {"properties", "required", "additionalProperties"};
const std::set<std::string_view> kOfArrays = {"items", "prefixItems", "minItems", "maxItems"};
const std::set<std::string_view> kOfStrings = {"minLength", "maxLength", "pattern", "format"};
const std::set<std::string_view> kOfNumbers = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
// Formats by name, as patterns: the library's own allow an address 01.2.3.4 and a 30th of February.
constexpr std::string_view kDate =
    "[1-9][0-9][0-9][0-9]-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
    "02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])";

std::string pattern_of_format(std::string_view name) {
  if (name == "date") return std::string(kDate);
  if (name == "time") return std::string(kTime);
  if (name == "date-time") return fmt::format("{}T{}", kDate, kTime);
  if (name == "uuid") return "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
  if (name == "ipv4") return fmt::format("{0}\\.{0}\\.{0}\\.{0}", kByte);
  return {};
}

class Checker {
 public:
  // kAll: the check goes on behind a fault, so that all places are known; what it makes counts only where
  // there is none.
  enum class Faults : uint8_t { kFirst, kAll };
  Checker(const Json& root, const std::string& field, Faults faults)
      : root_(root), field_(field), faults_(faults) {}

  Json check(const Json& schema, const std::string& path, int depth) {
    if (failed()) return {};
    if (depth > kMaxDepth) return refuse(path, fmt::format("is nested deeper than {} levels", kMaxDepth));
    if (schema.is_boolean())
      return schema.get<bool>() ? Json::object() : refuse(path, "is false, which no value can fulfil");
    if (!schema.is_object()) return refuse(path, fmt::format("is {}, not a schema", schema.type_name()));
    Json out = Json::object();
    std::vector<std::string> asserted;
    for (const auto& [key, value] : schema.items())
      if (!kAnnotations.contains(key)) asserted.push_back(key);
    for (const char* definitions : {"$defs", "definitions"})
      if (const auto found = schema.find(definitions); found != schema.end())
        out[definitions] = check_all(*found, path + "." + definitions, depth);
    for (const auto& [key, check_one] : {std::pair("$ref", &Checker::check_reference),
                                         {"const", &Checker::check_const},
                                         {"enum", &Checker::check_enum},
                                         {"anyOf", &Checker::check_any_of},
                                         {"oneOf", &Checker::check_one_of},
                                         {"allOf", &Checker::check_all_of}}) {
      if (!schema.contains(key)) continue;
      (this->*check_one)(schema, path, depth, out);
      return only_beside(schema, asserted, key, path) ? out : Json();
    }
    check_typed(schema, asserted, path, depth, out);
    return out;
  }

  // Whether there is nothing more to find out.
  bool failed() const { return places_.size() >= (faults_ == Faults::kFirst ? 1 : kMaxPlaces); }
  const Error& error() const { return error_; }
  const std::vector<std::string>& places() const { return places_; }  // of faults, as errors name them

 private:
  Json refuse(const std::string& path, const std::string& what) {
    const std::string place = path.empty() ? field_ : field_ + path;
    if (!failed()) complain(invalid_argument(place, "'{}' {}", place, what));
    return {};
  }

  void complain(Error error) {
    if (failed()) return;
    places_.push_back(error.field);
    if (places_.size() == 1) error_ = std::move(error);
  }

  Json check_all(const Json& schemas, const std::string& path, int depth) {
    Json out = Json::object();
    if (!schemas.is_object())
      return refuse(path, fmt::format("is {}, not an object of schemas", schemas.type_name()));
    for (const auto& [name, schema] : schemas.items()) {
      if (failed()) break;
      append(out, name, check(schema, path + "." + name, depth + 1));
    }
    return out;
  }

  // A key that `object` does not hold yet; to look for it first would take as long as there are keys.
  static void append(Json& object, const std::string& key, Json value) {
    object.get_ref<Json::object_t&>().emplace_back(key, std::move(value));
  }

  // The library reads these keywords alone: another beside them would not be enforced.
  bool only_beside(const Json& schema, const std::vector<std::string>& asserted, std::string_view keyword,
                   const std::string& path) {
    for (const std::string& key : asserted) {
      const bool fits = key == keyword || (key == "type" && (keyword == "const" || keyword == "enum") &&
                                           values_are_of_type(schema, keyword));
      if (!fits) refuse(path + "." + key, fmt::format("beside '{}' is not supported", keyword));
    }
    return !failed();
  }

  static bool is_of(const Json& value, std::string_view type) {
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    return type == value.type_name();
  }

  static bool values_are_of_type(const Json& schema, std::string_view keyword) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    const Json values = keyword == "enum" ? schema["enum"] : Json::array({schema["const"]});
    return std::all_of(values.begin(), values.end(), [&](const Json& value) {
      return std::any_of(types.begin(), types.end(), [&](const Json& type) {
        return type.is_string() && is_of(value, type.get_ref<const std::string&>());
      });
    });
  }

  void check_reference(const Json& schema, const std::string& path, int /*depth*/, Json& out) {
    const Json& reference = schema["$ref"];
    if (!reference.is_string()) return void(refuse(path + ".$ref", "must be text"));
    const auto& text = reference.get_ref<const std::string&>();
    if (target_of(text) == nullptr)
      return void(refuse(path + ".$ref",
                         fmt::format("is \"{}\": it must be \"#\" or name an entry of the root's $defs",
                                     text.substr(0, 100))));
    std::set<std::string> open;
    if (leads_back(schema, open))
      return void(refuse(path + ".$ref", "leads back to itself without a value in between"));
    out["$ref"] = text;
  }

  // What "#", "#/$defs/NAME" and "#/definitions/NAME" name; null where there is nothing, or another path.
  const Json* target_of(std::string_view text) const {
    if (text == "#") return &root_;
    for (const char* of : {"$defs", "definitions"}) {
      const std::string prefix = fmt::format("#/{}/", of);
      if (!text.starts_with(prefix)) continue;
      const std::string_view name = text.substr(prefix.size());
      const auto entries = root_.find(of);
      if (name.find_first_of("/~%") != std::string_view::npos || entries == root_.end() ||
          !entries->is_object())
        return nullptr;
      const auto entry = entries->find(name);
      return entry == entries->end() ? nullptr : &*entry;
    }
    return nullptr;
  }

  // Whether following references and choices, and nothing that a value consists of, comes to an open one
  // again. The references were checked, or are when their turn comes.
  bool leads_back(const Json& schema, std::set<std::string>& open) {
    if (!schema.is_object()) return false;
    if (const auto found = schema.find("$ref"); found != schema.end() && found->is_string()) {
      const auto& text = found->get_ref<const std::string&>();
      const Json* target = target_of(text);
      if (target == nullptr || ends_.contains(text)) return false;
      if (!open.insert(text).second) return true;
      const bool found_itself = leads_back(*target, open);
      open.erase(text);
      if (!found_itself) ends_.insert(text);
      return found_itself;
    }
    for (const char* keyword : {"anyOf", "oneOf", "allOf"})
      if (const auto options = schema.find(keyword); options != schema.end() && options->is_array())
        for (const Json& option : *options)
          if (leads_back(option, open)) return true;
    return false;
  }
  void check_const(const Json& schema, const std::string& /*path*/, int /*depth*/, Json& out) {
    out["const"] = schema["const"];
  }
  void check_enum(const Json& schema, const std::string& path, int /*depth*/, Json& out) {
    if (!schema["enum"].is_array() || schema["enum"].empty())
      return void(refuse(path + ".enum", "must be an array of one or more values"));
    out["enum"] = schema["enum"];
  }
  void check_alternatives(const Json& schema, const char* keyword, const std::string& path, int depth,
                          Json& out) {
    const Json& options = schema[keyword];
    if (!options.is_array() || options.empty())
      return void(refuse(path + "." + keyword, "must be an array of one or more schemas"));
    for (size_t i = 0; i < options.size() && !failed(); ++i)
      out["anyOf"].push_back(check(options[i], fmt::format("{}.{}[{}]", path, keyword, i), depth + 1));
  }
  void check_any_of(const Json& schema, const std::string& path, int depth, Json& out) {
    check_alternatives(schema, "anyOf", path, depth, out);
  }
  void check_one_of(const Json& schema, const std::string& path, int depth, Json& out) {
    check_alternatives(schema, "oneOf", path, depth, out);
    if (failed()) return;
    std::set<std::string> types;
    for (const Json& option : schema["oneOf"]) {
      const auto type = option.is_object() ? option.find("type") : option.end();
      const bool is_named = option.is_object() && type != option.end() && type->is_string();
      std::string name = is_named ? type->get<std::string>() : "";
      if (name == "integer") name = "number";
      if (name.empty() || !types.insert(name).second)
        return void(
            refuse(path + ".oneOf", "is supported only where the schemas have different types; use anyOf"));
    }
  }
  void check_all_of(const Json& schema, const std::string& path, int depth, Json& out) {
    if (!schema["allOf"].is_array() || schema["allOf"].size() != 1)
      return void(refuse(path + ".allOf", "is supported only with one schema in it"));
    const Json only = check(schema["allOf"][0], path + ".allOf[0]", depth + 1);
    if (only.is_object()) out.update(only);
  }

  std::vector<std::string> types_of(const Json& schema, const std::vector<std::string>& asserted,
                                    const std::string& path) {
    std::vector<std::string> types;
    const auto found = schema.find("type");
    if (found != schema.end()) {
      for (const Json& type : found->is_array() ? *found : Json::array({*found})) {
        if (!type.is_string() || !kTypes.contains(type.get_ref<const std::string&>()))
          return refuse(path + ".type", fmt::format("is {}, not the name of a type", to_text(type))), types;
        types.push_back(type.get<std::string>());
      }
      if (types.empty()) refuse(path + ".type", "names 0 types");
      return types;
    }
    // A keyword about one type says nothing of others; that it be of the type is less, not more.
    for (const auto& [keywords, type] : {std::pair(&kOfObjects, "object"),
                                         {&kOfArrays, "array"},
                                         {&kOfStrings, "string"},
                                         {&kOfNumbers, "number"}})
      if (std::any_of(asserted.begin(), asserted.end(),
                      [&](const std::string& key) { return keywords->contains(key); }))
        types.emplace_back(type);
    if (types.size() > 1) refuse(path, "has keywords of several types and no 'type'");
    return types;
  }

  void check_typed(const Json& schema, const std::vector<std::string>& asserted, const std::string& path,
                   int depth, Json& out) {
    const std::vector<std::string> types = types_of(schema, asserted, path);
    if (failed()) return;
    const auto has = [&](const char* type) {
      return std::find(types.begin(), types.end(), type) != types.end();
    };
    for (const std::string& key : asserted) {
      const bool is_known = key == "type" || kOfObjects.contains(key) || kOfArrays.contains(key) ||
                            kOfStrings.contains(key) || kOfNumbers.contains(key);
      if (!is_known) refuse(path + "." + key, "is not supported: it would not be enforced");
    }
    if (failed()) return;
    if (types.size() == 1) {
      out["type"] = types[0];
    } else if (!types.empty()) {
      out["type"] = types;
    }
    if (has("object")) check_object(schema, path, depth, out);
    if (has("array")) check_array(schema, path, depth, out);
    if (has("string")) check_string(schema, path, out);
    if (has("integer") || has("number")) check_number(schema, path, out);
  }

  void check_object(const Json& schema, const std::string& path, int depth, Json& out) {
    const Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    const Json additional = schema.value("additionalProperties", Json(true));
    Json checked = check_all(properties, path + ".properties", depth);
    Json others = Json(false);
    if (additional != false) others = check(additional, path + ".additionalProperties", depth + 1);
    if (!required.is_array()) return void(refuse(path + ".required", "must be an array of names"));
    std::set<std::string, std::less<>> names;
    if (checked.is_object())
      for (const auto& property : checked.items()) names.insert(property.key());
    if (names.empty()) checked = Json::object();
    for (const Json& name : required) {
      if (!name.is_string()) return void(refuse(path + ".required", "must be an array of names"));
      const auto& key = name.get_ref<const std::string&>();
      if (!names.insert(key).second) continue;
      if (others == false)
        return void(
            refuse(path + ".required", fmt::format("names \"{}\", which additionalProperties forbids", key)));
      append(checked, key, others);
    }
    if (failed()) return;
    // A further key could be a second one of the same name: objects with properties have no others.
    const bool is_map = checked.empty();
    if (!is_map) out["properties"] = std::move(checked);
    if (!required.empty()) out["required"] = required;
    out["additionalProperties"] = is_map ? others : Json(false);
  }

  void check_array(const Json& schema, const std::string& path, int depth, Json& out) {
    if (const auto prefix = schema.find("prefixItems"); prefix != schema.end()) {
      if (!prefix->is_array()) return void(refuse(path + ".prefixItems", "must be an array of schemas"));
      for (size_t i = 0; i < prefix->size() && !failed(); ++i)
        out["prefixItems"].push_back(
            check((*prefix)[i], fmt::format("{}.prefixItems[{}]", path, i), depth + 1));
    }
    if (const auto items = schema.find("items"); items != schema.end()) {
      if (items->is_array()) return void(refuse(path + ".items", "is an array: give prefixItems"));
      out["items"] = *items == false ? Json(false) : check(*items, path + ".items", depth + 1);
    }
    copy_counts(schema, {"minItems", "maxItems"}, path, out);
  }

  void check_string(const Json& schema, const std::string& path, Json& out) {
    const bool has_counts = schema.contains("minLength") || schema.contains("maxLength");
    const int num_ways =
        (schema.contains("pattern") ? 1 : 0) + (schema.contains("format") ? 1 : 0) + (has_counts ? 1 : 0);
    if (num_ways > 1)
      return void(refuse(path, "has more than one of pattern, format and a length: give one"));
    copy_counts(schema, {"minLength", "maxLength"}, path, out);
    for (const char* key : {"pattern", "format"}) {
      const auto found = schema.find(key);
      if (found == schema.end()) continue;
      if (!found->is_string()) return void(refuse(path + "." + key, "must be text"));
      out[key] = *found;
    }
    if (out.contains("pattern"))
      out["pattern"] = enforceable_pattern(out["pattern"].get<std::string>(), path);
    if (!out.contains("format")) return;
    std::string pattern = pattern_of_format(out["format"].get_ref<const std::string&>());
    if (pattern.empty())
      return void(refuse(
          path + ".format",
          fmt::format("is {}: supported are date, time, date-time, uuid and ipv4", to_text(out["format"]))));
    out.erase("format");
    out["pattern"] = std::move(pattern);
  }

  // The pattern as the library matches it to the letter inside of a JSON string.
  std::string enforceable_pattern(const std::string& pattern, const std::string& path) {
    const std::string place = field_ + path + ".pattern";
    if (const Status checked = check_regex(pattern, place); !checked) {
      complain(checked.error());
      return {};
    }
    auto rewritten = pattern_of_json_string(pattern, place);
    if (!rewritten) complain(rewritten.error());
    return rewritten ? *rewritten : std::string();
  }

  void check_number(const Json& schema, const std::string& path, Json& out) {
    for (const std::string_view key : kOfNumbers) {
      const auto found = schema.find(key);
      if (found == schema.end()) continue;
      const std::string place = fmt::format("{}.{}", path, key);
      if (!found->is_number() || !std::isfinite(found->get<double>()))
        return void(refuse(place, "must be a number"));
      if (std::abs(found->get<double>()) > static_cast<double>(kMaxInteger))
        return void(refuse(place, fmt::format("is beyond {} in size", kMaxInteger)));
      out[std::string(key)] = *found;
    }
  }

  void copy_counts(const Json& schema, std::initializer_list<const char*> keys, const std::string& path,
                   Json& out) {
    int64_t least = 0;
    for (const char* key : keys) {  // the minimum first
      const auto found = schema.find(key);
      if (found == schema.end()) continue;
      const std::string place = path + "." + key;
      const bool is_count = found->is_number_integer() && found->get<int64_t>() >= 0;
      if (!is_count) return void(refuse(place, "must be a whole number of 0 or more"));
      const int64_t count = found->get<int64_t>();
      if (count > kMaxCount)
        return void(refuse(place, fmt::format("is {}: supported are up to {}", count, kMaxCount)));
      if (count < least)
        return void(refuse(place, fmt::format("is {}, less than the least of {}", count, least)));
      least = count;
      out[key] = count;
    }
  }

  const Json& root_;
  std::set<std::string> ends_;  // references from which leads_back() came to an end
  const std::string& field_;
  const Faults faults_;
  std::vector<std::string> places_;
  Error error_;
};

// The longest key of `object` that `path` begins with; empty when none does.
std::string key_at(const Json& object, std::string_view path) {
  std::string longest;
  for (const auto& [key, value] : object.items()) {
    if (!path.starts_with(key) || key.size() < longest.size()) continue;
    if (path.size() == key.size() || path[key.size()] == '.' || path[key.size()] == '[') longest = key;
  }
  return longest;
}

// Takes away what `path` (".properties.a.format") names: a keyword goes, a schema becomes one of any value.
// False when there is no such place.
bool remove_at(Json& schema, std::string_view path) {
  constexpr std::string_view kSchemas[] = {"properties", "$defs", "definitions"};
  Json* parent = nullptr;
  Json* value = &schema;
  std::string key;
  bool is_schema = true, holds_schemas = false;
  while (!path.empty()) {
    parent = value;
    if (path[0] == '[') {
      const size_t close = path.find(']');
      size_t index = 0;
      const auto read = std::from_chars(path.data() + 1, path.data() + path.size(), index);
      if (close == path.npos || read.ec != std::errc() || read.ptr != path.data() + close) return false;
      if (!value->is_array() || index >= value->size()) return false;
      value = &(*value)[index];
      path.remove_prefix(close + 1);
      key.clear();
      is_schema = true;
      continue;
    }
    path.remove_prefix(1);
    if (!value->is_object()) return false;
    key = key_at(*value, path);
    if (key.empty()) return false;
    value = &(*value)[key];
    path.remove_prefix(key.size());
    is_schema = holds_schemas;
    holds_schemas =
        !holds_schemas && std::find(std::begin(kSchemas), std::end(kSchemas), key) != std::end(kSchemas);
  }
  if (is_schema || parent == nullptr) {
    if (*value == Json::object()) return false;
    *value = Json::object();
  } else {
    parent->erase(key);
  }
  return true;
}

}  // namespace

Json loosened_schema(const Json& schema) {
  constexpr int kMaxPasses = 8;  // what goes may show what only stood behind it
  if (to_text(schema).size() > kMaxSchemaBytes) return Json::object();
  const std::string field = "schema";
  Json loosened = schema;
  size_t num_places = 0;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    Checker checker(loosened, field, Checker::Faults::kAll);
    Json out = checker.check(loosened, "", 0);
    if (checker.places().empty()) return out;
    num_places += checker.places().size();
    if (num_places >= kMaxPlaces) break;
    bool has_changed = false;
    for (const std::string& place : checker.places())
      if (place.starts_with(field) && remove_at(loosened, std::string_view(place).substr(field.size())))
        has_changed = true;
    if (!has_changed) break;
  }
  return Json::object();
}

Result<Json> enforceable_schema(const Json& schema, const std::string& field) {
  if (const size_t size = to_text(schema).size(); size > kMaxSchemaBytes)
    return invalid_argument(field, "'{}' has {} bytes, more than the limit of {}", field, size,
                            kMaxSchemaBytes);
  Checker checker(schema, field, Checker::Faults::kFirst);
  Json out = checker.check(schema, "", 0);
  if (checker.failed()) return checker.error();
  return out;
}

}  // namespace lockstep::serving::constraints
