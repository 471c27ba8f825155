#pragma once
// Reads the fields of one JSON object and keeps the first complaint, so that a reader is a list of fields and
// one check.
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::tokenizing {

class JsonFields {
 public:
  // `path` is how errors name the object: "added_tokens[3]". Anything but an object is a complaint.
  JsonFields(const Json& value, std::string path);

  // A complaint when absent or of another type; the value returned is then empty.
  std::string text(std::string_view key);
  bool flag(std::string_view key);
  int64_t integer(std::string_view key);
  const Json& array(std::string_view key);

  // Absent and null mean `fallback`.
  bool flag_or(std::string_view key, bool fallback);
  std::string text_or(std::string_view key, std::string_view fallback);

  // Null when absent or null.
  const Json& any(std::string_view key) const;

  void complain(Error error);
  std::string path_of(std::string_view key) const;
  const std::string& path() const { return path_; }

  bool ok() const { return error_.message.empty(); }
  const Error& error() const { return error_; }

 private:
  const Json* find(std::string_view key) const;
  void complain_about(std::string_view key, std::string_view wanted);

  const Json& object_;
  std::string path_;
  Error error_;
};

// A value as an error shows it: cut to a readable length.
std::string excerpt(const Json& value);

// The "type" of a component; empty for null.
Result<std::string> component_type(const Json& value, const std::string& path);

}  // namespace lockstep::serving::tokenizing
