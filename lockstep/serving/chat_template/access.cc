#include "lockstep/serving/chat_template/access.h"

#include <algorithm>

#include "lockstep/serving/chat_template/loop.h"
#include "lockstep/serving/chat_template/methods.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/syntax.h"
#include "lockstep/serving/chat_template/text_search.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

Value find_in_namespace(Heap& heap, const Value& space, std::string_view name) {
  const auto& attributes = space.ref<std::shared_ptr<Namespace>>()->attributes;
  heap.step(attributes.size() / 16);
  for (const auto& [key, value] : attributes)
    if (key == name) return value;
  return {};
}

Value char_at(Heap& heap, const Value& text, size_t char_idx) {
  const Text& content = text.text();
  if (content.is_ascii()) return heap.text_like(text, std::string(1, content.bytes[char_idx]));
  heap.work(content.bytes.size());
  const size_t start = byte_offset(content.bytes, char_idx);
  size_t end = start;
  next_char(content.bytes, end);
  return heap.text_like(text, content.bytes.substr(start, end - start));
}

// The item at a position that may be negative; missing outside.
Value item_at(Heap& heap, const Value& object, Integer idx) {
  const Integer size = *find_length(object);
  if (idx < 0) idx += size;
  if (idx < 0 || idx >= size) return {};
  if (object.is(Kind::kText)) return char_at(heap, object, static_cast<size_t>(idx));
  if (object.is_sequence()) return object.items()[static_cast<size_t>(idx)];
  const Range& range = *object.ref<std::shared_ptr<const Range>>();
  return Value::integer(range.start + idx * range.step);
}

bool has_positions(const Value& value) {
  return value.is(Kind::kText) || value.is_sequence() || value.is(Kind::kRange);
}

// object[key] as Python has it; missing where Python raises.
Value subscript(Heap& heap, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    if (key.is(Kind::kText)) {
      heap.step(1 + key.view().size() / 64);
      const Value* found = object.dict().find(key.view());
      return found != nullptr ? *found : Value();
    }
    const Value* found = is_hashable(heap, key) ? object.dict().find(heap, key) : nullptr;
    return found != nullptr ? *found : Value();
  }
  return has_positions(object) && key.is_integral() ? item_at(heap, object, key.to_integer()) : Value();
}

bool is_dunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

Value forbidden(Heap& heap, const Value& object, std::string_view name) {
  return heap.undefined_hint(
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
}

struct SliceBounds {
  Integer start = 0, stop = 0, step = 1;
};

// Python's slice.indices().
SliceBounds resolve(Heap& heap, const std::array<Value, 3>& bounds, Integer size) {
  const auto written = [&](const Value& value, Integer fallback) {
    if (value.is(Kind::kMissing) || value.is(Kind::kNone)) return fallback;
    if (!value.is_integral()) heap.fail("slice indices must be integers or None, not '{}'", type_name(value));
    return value.to_integer();
  };
  SliceBounds out;
  constexpr Integer kFar = Integer{1} << 62;  // a longer step takes the first item only, too
  out.step = std::clamp(written(bounds[2], 1), -kFar, kFar);
  if (out.step == 0) heap.fail("slice step cannot be zero");
  const Integer lowest = out.step > 0 ? 0 : -1;
  const Integer highest = out.step > 0 ? size : size - 1;
  const auto clamp = [&](Integer value) {
    if (value < 0) return value < -size ? lowest : std::max(value + size, lowest);
    return std::min(value, highest);
  };
  out.start = clamp(written(bounds[0], out.step > 0 ? lowest : highest));
  out.stop = bounds[1].is(Kind::kMissing) || bounds[1].is(Kind::kNone) ? (out.step > 0 ? highest : lowest)
                                                                       : clamp(written(bounds[1], 0));
  return out;
}

Value slice_of_text(Heap& heap, const Value& text, const SliceBounds& bounds, size_t count) {
  const Text& content = text.text();
  heap.work(content.bytes.size());
  if (bounds.step == 1) {
    const auto first = static_cast<size_t>(bounds.start);
    const size_t begin = content.is_ascii() ? first : byte_offset(content.bytes, first);
    const std::string_view rest = std::string_view(content.bytes).substr(begin);
    const size_t size = content.is_ascii() ? count : byte_offset(rest, count);
    return heap.text_like(text, std::string(rest.substr(0, size)));
  }
  const std::u32string chars = to_chars(content.bytes);
  heap.step(count / 8);
  std::string out;
  for (size_t i = 0; i < count; ++i)
    append_char(out, chars[static_cast<size_t>(bounds.start + static_cast<Integer>(i) * bounds.step)]);
  return heap.text_like(text, std::move(out));
}

Value slice_of_items(Heap& heap, const Value& object, const SliceBounds& bounds, size_t count) {
  heap.require_room(count * sizeof(Value));
  Values out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i)
    out.push_back(object.items()[static_cast<size_t>(bounds.start + static_cast<Integer>(i) * bounds.step)]);
  return object.is(Kind::kList) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
}

Value slice_of_range(Heap& heap, const Range& range, const SliceBounds& bounds) {
  return heap.range({range.start + bounds.start * range.step, range.start + bounds.stop * range.step,
                     range.step * bounds.step});
}

SharedValues own(Heap& heap, Values items) {
  const Value list = heap.list(std::move(items));
  const auto& pointer = list.ref<std::shared_ptr<const List>>();
  return SharedValues({pointer, &pointer->items});
}

Values chars_of(Heap& heap, const Value& text) {
  const Text& content = text.text();
  heap.step(content.num_chars);
  heap.require_room(content.num_chars, sizeof(Value));
  Values out;
  out.reserve(content.num_chars);
  for (size_t offset = 0; offset < content.bytes.size();) {
    const size_t start = offset;
    next_char(content.bytes, offset);
    out.push_back(heap.text(content.bytes.substr(start, offset - start)));
  }
  return out;
}

Values items_of_view(Heap& heap, const DictView& view) {
  heap.step(view.dict->size());
  heap.require_room(view.dict->size(), sizeof(Value));
  Values out;
  out.reserve(view.dict->size());
  for (const auto& [key, value] : view.dict->entries()) {
    if (view.part == ViewOf::kItems)
      out.push_back(heap.tuple({key, value}));
    else
      out.push_back(view.part == ViewOf::kKeys ? key : value);
  }
  return out;
}

Values items_of_range(Heap& heap, const Range& range) {
  const Integer size = range.size();
  heap.require_room(size, sizeof(Value));
  heap.step(static_cast<uint64_t>(size));
  Values out;
  out.reserve(static_cast<size_t>(size));
  for (Integer i = 0; i < size; ++i) out.push_back(Value::integer(range.start + i * range.step));
  return out;
}

Values rest_of(Heap& heap, Iterator& iterator) {
  heap.step(iterator.items.size() / 8);
  Values out(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next), iterator.items.end());
  iterator.next = iterator.items.size();
  if (!iterator.failure.empty()) heap.fail("{}", iterator.failure);
  return out;
}

bool contains_item(Heap& heap, const SharedValues& items, const Value& wanted) {
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return equals(heap, item, wanted); });
}

bool range_contains(const Range& range, Integer value) {
  if (range.size() == 0) return false;
  const Integer last = range.start + (range.size() - 1) * range.step;
  if (value < std::min(range.start, last) || value > std::max(range.start, last)) return false;
  return (value - range.start) % range.step == 0;
}

}  // namespace

Value own_attribute(Heap& heap, const Value& object, std::string_view name) {
  if (object.is(Kind::kNamespace)) return find_in_namespace(heap, object, name);
  if (object.is(Kind::kLoop)) {
    if (Value value = loop_attribute(heap, object, name); !value.is(Kind::kMissing)) return value;
  }
  if (object.is(Kind::kMacro) && name == "name")
    return macro_name(object).empty() ? Value::none() : heap.text(macro_name(object));
  if (object.is(Kind::kTuple) && object.ref<std::shared_ptr<const Tuple>>()->is_group) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  if (is_dunder(name) || is_forbidden(object, name)) return forbidden(heap, object, name);
  const MethodEntry* method = find_method(object, name);
  return method != nullptr ? heap.method(object, *method) : Value();
}

Value get_attribute(Heap& heap, const Value& object, std::string_view name) {
  heap.step();
  if (object.is(Kind::kUndefined)) heap.fail_undefined(object);
  if (Value own = own_attribute(heap, object, name); !own.is(Kind::kMissing)) return own;
  if (object.is(Kind::kDict)) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return heap.undefined_attribute(object, name);
}

Value get_item(Heap& heap, const Value& object, const Value& key) {
  heap.step();
  if (object.is(Kind::kUndefined)) heap.fail_undefined(object);
  if (Value item = subscript(heap, object, key); !item.is(Kind::kMissing)) return item;
  if (key.is(Kind::kText)) {
    if (Value own = own_attribute(heap, object, key.view()); !own.is(Kind::kMissing)) return own;
  }
  return heap.undefined_element(object, key);
}

Value get_slice(Heap& heap, const Value& object, const std::array<Value, 3>& bounds) {
  heap.step();
  if (object.is(Kind::kUndefined)) heap.fail_undefined(object);
  if (object.is(Kind::kDict)) heap.fail("unhashable type: 'slice'");
  if (!has_positions(object)) heap.fail("'{}' object is not subscriptable", type_name(object));
  const SliceBounds resolved = resolve(heap, bounds, *find_length(object));
  if (object.is(Kind::kRange))
    return slice_of_range(heap, *object.ref<std::shared_ptr<const Range>>(), resolved);
  const Range positions{resolved.start, resolved.stop, resolved.step};
  const auto count = static_cast<size_t>(positions.size());
  if (object.is(Kind::kText)) return slice_of_text(heap, object, resolved, count);
  return slice_of_items(heap, object, resolved, count);
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

SharedValues iterate(Heap& heap, const Value& value) {
  heap.step();
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kText:
      return own(heap, chars_of(heap, value));
    case Kind::kList: {
      const auto& list = value.ref<std::shared_ptr<const List>>();
      return SharedValues({list, &list->items});
    }
    case Kind::kTuple: {
      const auto& tuple = value.ref<std::shared_ptr<const Tuple>>();
      return SharedValues({tuple, &tuple->items});
    }
    case Kind::kDict:
      return own(heap, items_of_view(heap, {value.dict_ref(), ViewOf::kKeys}));
    case Kind::kView:
      return own(heap, items_of_view(heap, *value.ref<std::shared_ptr<const DictView>>()));
    case Kind::kRange:
      return own(heap, items_of_range(heap, *value.ref<std::shared_ptr<const Range>>()));
    case Kind::kIterator:
      return own(heap, rest_of(heap, *value.ref<std::shared_ptr<Iterator>>()));
    case Kind::kLoop:
      heap.fail("iterating over the loop variable itself is not supported");
    default:
      heap.fail("'{}' object is not iterable", type_name(value));
  }
}

Value first_item(Heap& heap, const Value& value) {
  if (!value.is(Kind::kIterator)) {
    const SharedValues items = iterate(heap, value);
    return items.size() == 0 ? Value() : items[0];
  }
  Iterator& iterator = *value.ref<std::shared_ptr<Iterator>>();
  if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
  if (!iterator.failure.empty()) heap.fail("{}", iterator.failure);
  return {};
}

Values reversed_items(Heap& heap, const Value& value) {
  if (value.is(Kind::kIterator) || value.is(Kind::kLoop))
    heap.fail("'{}' object is not reversible", type_name(value));
  const SharedValues items = iterate(heap, value);
  heap.step(items.size() / 8);
  return Values(items.all().rbegin(), items.all().rend());
}

std::optional<Integer> find_length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return value.text().num_chars;
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.dict().size();
    case Kind::kView:
      return value.ref<std::shared_ptr<const DictView>>()->dict->size();
    case Kind::kRange:
      return value.ref<std::shared_ptr<const Range>>()->size();
    case Kind::kLoop:
      return value.ref<std::shared_ptr<Loop>>()->find_length();
    default:
      return std::nullopt;
  }
}

Integer length(Heap& heap, const Value& value) {
  if (const auto size = find_length(value)) return *size;
  heap.fail("object of type '{}' has no len()", type_name(value));
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  heap.step();
  switch (container.kind()) {
    case Kind::kText:
      if (!item.is(Kind::kText))
        heap.fail("'in <string>' requires string as left operand, not {}", type_name(item));
      heap.work(container.view().size());
      return find_text(container.view(), item.view()) != std::string_view::npos;
    case Kind::kDict:
      return container.dict().find(heap, item) != nullptr;
    case Kind::kView:
      if (const auto& view = *container.ref<std::shared_ptr<const DictView>>(); view.part == ViewOf::kKeys)
        return view.dict->find(heap, item) != nullptr;
      return contains_item(heap, iterate(heap, container), item);
    case Kind::kRange:
      if (item.is_integral())
        return range_contains(*container.ref<std::shared_ptr<const Range>>(), item.to_integer());
      return contains_item(heap, iterate(heap, container), item);
    default:
      if (!is_iterable(container)) heap.fail("argument of type '{}' is not iterable", type_name(container));
      return contains_item(heap, iterate(heap, container), item);
  }
}

}  // namespace lockstep::serving::jinja
