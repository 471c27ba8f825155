#pragma once
// Python's str() and repr(), HTML escaping, and json.dumps() as Hugging Face's tojson calls it.
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

std::string integer_text(Integer value);
std::string real_text(double value);  // the shortest text that reads back as the same number, "1.0", "1e-07"

void append_str(TextBuilder& out, const Value& value);
void append_repr(TextBuilder& out, const Value& value);
std::string repr(Heap& heap, const Value& value);
Value to_text(Heap& heap, const Value& value);       // str(): markup becomes plain text
Value to_soft_text(Heap& heap, const Value& value);  // the same, but a text stays what it is

void append_escaped(TextBuilder& out, std::string_view text);
Value escape(Heap& heap, const Value& value);  // markup; what is markup already stays

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
void append_json(TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace lockstep::serving::jinja
