#include "lockstep/serving/chat_template/attribute_path.h"

#include <algorithm>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/text_operations.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {

Value comparable(Heap& heap, const Value& value, Case text_case) {
  if (text_case == Case::kKeep || !value.is(Kind::kText)) return value;
  heap.work(value.view().size() * (value.text().is_ascii() ? 1 : 8));
  return heap.text(to_lower(value.view()));
}

AttributePath::AttributePath(Heap& heap, const Value& attribute) {
  if (attribute.is(Kind::kMissing) || attribute.is(Kind::kNone)) return;
  if (!attribute.is(Kind::kText)) {
    steps_ = {attribute};
    return;
  }
  for (const std::string_view step : split(heap, attribute.view(), ".", -1, Side::kLeft)) {
    const bool is_number = !step.empty() && step.size() < 18 &&
                           std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; });
    Integer number = 0;
    for (const char c : step) number = is_number ? number * 10 + (c - '0') : 0;
    steps_.push_back(is_number ? Value::integer(number) : heap.text(step));
  }
}

Value AttributePath::find(Heap& heap, const Value& item, const Value& fallback) const {
  Value found = item;
  const bool has_fallback = !fallback.is(Kind::kMissing) && !fallback.is(Kind::kNone);
  for (const Value& step : steps_) {
    found = get_item(heap, found, step);
    if (has_fallback && found.is(Kind::kUndefined)) found = fallback;
  }
  return found;
}

}  // namespace lockstep::serving::jinja
