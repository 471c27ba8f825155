#include "lockstep/serving/chat_template/loop.h"

namespace lockstep::serving::jinja {

bool Loop::advance() {
  Value next = std::move(following);
  following = Value();
  if (next.is(Kind::kMissing) && (source == nullptr || !source->next(next))) return false;
  ++index0;
  previous = std::move(current);
  current = std::move(next);
  return true;
}

bool Loop::peek() {
  if (!following.is(Kind::kMissing)) return true;
  if (source == nullptr) return false;
  Value next;
  if (!source->next(next)) return false;
  following = std::move(next);
  return true;
}

Integer Loop::find_length() {
  if (length) return *length;
  auto rest = std::make_shared<Values>();
  for (Value item; source != nullptr && source->next(item);) rest->push_back(std::move(item));
  const Integer num_waiting = following.is(Kind::kMissing) ? 0 : 1;
  length = index0 + 1 + num_waiting + static_cast<Integer>(rest->size());
  if (source != nullptr) source = std::make_unique<ValuesSource>(SharedValues(std::move(rest)));
  return *length;
}

void Loop::end() {
  if (!length) length = index0 + 1;
  source.reset();
  previous = current = following = last_changed = Value();
}

Value loop_attribute(Heap& heap, const Value& value, std::string_view name) {
  Loop& loop = *value.ref<std::shared_ptr<Loop>>();
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.peek());
  if (name == "length") return Value::integer(loop.find_length());
  if (name == "revindex0") return Value::integer(loop.find_length() - loop.index0 - 1);
  if (name == "revindex") return Value::integer(loop.find_length() - loop.index0);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "previtem")
    return loop.previous.is(Kind::kMissing) ? heap.undefined_hint("there is no previous item")
                                            : loop.previous;
  if (name == "nextitem") return loop.peek() ? loop.following : heap.undefined_hint("there is no next item");
  return {};
}

}  // namespace lockstep::serving::jinja
