#pragma once
// Typed reading of a config.json: every problem is collected with its key, value and what was expected, so
// that a user sees them all at once. Values are hostile until read through here.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep::models {

class ConfigReader {
 public:
  explicit ConfigReader(const Json& config) : config_(config) {}

  int64_t integer(const char* key, int64_t least, int64_t most);
  int64_t integer_or(const char* key, int64_t absent, int64_t least, int64_t most);  // null counts as absent
  double number_or(const char* key, double absent, double least, double most);
  bool flag_or(const char* key, bool absent);
  std::string text_or(const char* key, const std::string& absent);
  const Json* object(const char* key);                              // null when absent or null
  std::vector<int64_t> integers(const char* key);                   // none when absent or null
  std::vector<std::string> texts(const char* key);                  // none when absent or null
  bool has(const char* key) const { return find(key) != nullptr; }  // and not null
  // A setting of which only some values are handled.
  void require(const char* key, const std::string& value, std::initializer_list<const char*> handled);
  void refuse(const char* key, const std::string& why);

  Status status() const;  // all problems in one error

 private:
  const Json* find(const char* key) const;
  const Json& config_;
  std::vector<std::string> problems_;
};

}  // namespace lockstep::models
