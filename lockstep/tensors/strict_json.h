#pragma once
// JSON read event by event, for the two documents of a checkpoint that may have a hundred thousand keys (an
// ordered document finds a key by linear search). A reader names what it expects; every other event ends it
// with a reason and the byte at which it stood. Only tensors/ includes this.
#include <string>
#include <string_view>

#include "lockstep/base/json.h"

namespace lockstep {

class StrictJsonReader : public nlohmann::json_sax<Json> {
 public:
  // An error says why and at which byte; `first_byte` is where the text begins in its file.
  Status read(std::string_view text, uint64_t first_byte);

  bool null() override { return refuse("null is not expected"); }
  bool boolean(bool) override { return refuse("a boolean is not expected"); }
  bool number_integer(number_integer_t value) override {
    return refuse(fmt::format("{} is negative", value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return refuse(fmt::format("the number {} is not expected", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse(fmt::format("{} is not a whole number", text));
  }
  bool string(string_t& text) override {
    return refuse(fmt::format("the string \"{}\" is not expected", text));
  }
  bool binary(binary_t&) override { return refuse("binary is not expected"); }
  bool start_object(std::size_t) override { return refuse("an object is not expected"); }
  bool end_object() override { return refuse("the object ends too early"); }
  bool key(string_t& name) override { return refuse(fmt::format("the key \"{}\" is not expected", name)); }
  bool start_array(std::size_t) override { return refuse("an array is not expected"); }
  bool end_array() override { return refuse("the array ends too early"); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& why) override;

 protected:
  // Ends the reading. Returns false, for `return refuse(…)`.
  bool refuse(std::string why);

 private:
  std::string why_;
  std::string_view text_;
};

}  // namespace lockstep
