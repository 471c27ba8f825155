#pragma once
// Looking into values: attributes and items as Jinja's sandbox resolves them, slices, iteration, length,
// membership.
#include <array>
#include <optional>
#include <string_view>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

// object.name: a method or attribute of the type first, then an item of that name; undefined when there is
// neither.
Value get_attribute(Heap& heap, const Value& object, std::string_view name);
// object[key]: an item first, then an attribute of that name; undefined when there is neither.
Value get_item(Heap& heap, const Value& object, const Value& key);
// The attribute itself, without falling back to an item; missing when there is none.
Value own_attribute(Heap& heap, const Value& object, std::string_view name);
// object[start:stop:step]; a bound that is missing was not written.
Value get_slice(Heap& heap, const Value& object, const std::array<Value, 3>& bounds);

bool is_iterable(const Value& value);
// What a for over the value would see. An iterator is used up by it.
SharedValues iterate(Heap& heap, const Value& value);
// The next item only: takes one from an iterator. Missing when there is none.
Value first_item(Heap& heap, const Value& value);
Values reversed_items(Heap& heap, const Value& value);

// Python's len(); nothing where the type has none.
std::optional<Integer> find_length(const Value& value);
Integer length(Heap& heap, const Value& value);
bool contains(Heap& heap, const Value& container, const Value& item);

}  // namespace lockstep::serving::jinja
