#pragma once
// Fields of one object of a file from a stranger, each bounded; the first that is wrong is kept as the error,
// with its name and its value. Internal to planning: plan_file.cc and machine_file.cc read by it.
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::planning {

class Fields {
 public:
  static constexpr int32_t kMostCount = 1 << 20;
  static constexpr size_t kMostText = 2000;

  // The object under `key` of `parent`.
  Fields(const Json& parent, const char* key);
  // `object` itself, called `name` in errors.
  static Fields of(const Json& object, std::string name);

  // Of what files did not always say.
  bool has(const char* key) const { return object_ != nullptr && object_->contains(key); }

  int64_t integer(const char* key, int64_t least, int64_t most);
  int32_t count(const char* key) { return static_cast<int32_t>(integer(key, 0, kMostCount)); }
  double number(const char* key, double least, double most);
  bool flag(const char* key);
  std::string text(const char* key);
  std::vector<int32_t> numbers(const char* key);
  std::vector<std::string> texts(const char* key);
  // Refuses every key but these.
  void only(std::initializer_list<std::string_view> keys);

  // One of the values of an enumeration, by its name.
  template <class Enum, size_t n>
  Enum one_of(const char* key, const Enum (&values)[n]) {
    const std::string word = text(key);
    for (const Enum value : values)
      if (name_of(value) == word) return value;
    fail(fmt::format("\"{}\" of \"{}\" is \"{}\", which it cannot be", key, name_, word));
    return values[0];
  }

  const Json* object() const { return object_; }
  Status status() const { return error_.empty() ? Status(Done{}) : invalid_argument(name_, "{}", error_); }
  void fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

 private:
  explicit Fields(std::string name) : name_(std::move(name)) {}
  const Json* find(const char* key);
  void refuse(const char* key, const Json& value, const std::string& should);

  std::string name_, error_;
  const Json* object_ = nullptr;
};

}  // namespace lockstep::planning
