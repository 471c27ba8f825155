#pragma once
// What filters take as `attribute`: "a.b.0", looked up step by step like items.
#include <optional>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

enum class Case : uint8_t { kKeep, kIgnore };

// A text in lower case where case is ignored; other values stay.
Value comparable(Heap& heap, const Value& value, Case text_case);

class AttributePath {
 public:
  AttributePath() = default;  // the item itself
  AttributePath(Heap& heap, const Value& attribute);

  // A step that finds nothing gives `fallback`, unless that is missing or none.
  Value find(Heap& heap, const Value& item, const Value& fallback = {}) const;

 private:
  Values steps_;
};

}  // namespace lockstep::serving::jinja
