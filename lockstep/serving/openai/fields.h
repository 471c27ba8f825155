#pragma once
// Reads the fields of one JSON object of a request. A null counts as absent; a wrong type or range is kept as
// the first complaint, which names the field by its whole path, so that a reader is a list of fields and one
// look at status().
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::openai {

class Fields {
 public:
  // `path` is how errors name the object: "messages[2]"; empty for the request's body.
  explicit Fields(const Json& object, std::string path = {});

  // Null when absent or null.
  const Json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  std::optional<double> number(std::string_view key, double low, double high);
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high);
  std::optional<bool> flag(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  const Json* array(std::string_view key);
  const Json* object(std::string_view key);

  // "the field KEY <reason>", unless there is a complaint already.
  void refuse(std::string_view key, std::string_view reason);
  void complain(Error error);
  std::string path_of(std::string_view key) const;

  bool ok() const { return !error_; }
  Status status() const;

 private:
  void wrong_type(std::string_view key, std::string_view wanted, const Json& value);

  const Json& object_;
  std::string path_;
  std::optional<Error> error_;
};

// A field under the name that the client knows it by.
struct FieldName {
  std::string_view from, to;
};

// An error about `from`, or about something in it, as one about `to`; the first name that fits.
Error renamed(Error error, std::span<const FieldName> names);

// What a value is, in the words of JSON: "a string", "an array", ...
std::string_view kind_of(const Json& value);

}  // namespace lockstep::serving::openai
