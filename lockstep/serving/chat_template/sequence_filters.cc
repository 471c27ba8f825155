// Filters on whole sequences: length, order, grouping, joining, choosing one item.
#include <algorithm>
#include <array>
#include <set>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/attribute_path.h"
#include "lockstep/serving/chat_template/filters.h"
#include "lockstep/serving/chat_template/methods.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/text_operations.h"

namespace lockstep::serving::jinja {
namespace {

Value length_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "length", arguments, {});
  return Value::integer(length(heap, subject));
}

Value first(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "first", arguments, {});
  Value item = first_item(heap, subject);
  return item.is(Kind::kMissing) ? heap.undefined_hint("No first item, sequence was empty.") : item;
}

Value last(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "last", arguments, {});
  const Values items = reversed_items(heap, subject);
  return items.empty() ? heap.undefined_hint("No last item, sequence was empty.") : items.front();
}

Value list(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "list", arguments, {});
  return heap.list(iterate(heap, subject).all());
}

Value reverse_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "reverse", arguments, {});
  if (subject.is(Kind::kText)) return heap.text_like(subject, reverse(heap, subject.view()));
  if (!is_iterable(subject))
    heap.fail("the filter 'reverse' needs something iterable, not '{}'", type_name(subject));
  if (!subject.is(Kind::kIterator)) return heap.iterator(reversed_items(heap, subject));
  const SharedValues items = iterate(heap, subject);
  return heap.list(Values(items.all().rbegin(), items.all().rend()));
}

Value join(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "join", arguments, {"d", "attribute"});
  const Value separator = to_text(heap, signature.value_or(0, constant_text("")));
  const AttributePath path(heap, signature.value(1));
  TextBuilder out(heap);
  bool is_first = true;
  for (const Value& item : iterate(heap, subject)) {
    heap.step();
    if (!is_first) out += separator.view();
    is_first = false;
    append_str(out, path.find(heap, item));
  }
  return out.finish();
}

Value default_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "default", arguments, {"default_value", "boolean"});
  if (!subject.is(Kind::kUndefined) && (!signature.flag(1) || is_true(subject))) return subject;
  return signature.value_or(0, constant_text(""));
}

Value attr(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "attr", arguments, {"name"}, 1);
  const std::string_view name = signature.text(0);
  if (subject.is(Kind::kUndefined)) heap.fail_undefined(subject);
  Value found = own_attribute(heap, subject, name);
  return found.is(Kind::kMissing) ? heap.undefined_attribute(subject, name) : found;
}

Value items_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "items", arguments, {});
  if (subject.is(Kind::kUndefined)) return heap.iterator({});
  if (!subject.is(Kind::kDict)) return heap.iterator({}, "Can only get item pairs from a mapping.");
  return heap.iterator(iterate(heap, heap.view(subject, ViewOf::kItems)).all());
}

enum class Order : uint8_t { kAscending, kDescending };

// Stable; `keys[i]` belongs to `items[i]`.
Values sorted(Heap& heap, const Values& items, const Values& keys, Order order) {
  heap.require_room(Integer{items.size()}, sizeof(Value) + sizeof(size_t));
  std::vector<size_t> positions(items.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = i;
  std::stable_sort(positions.begin(), positions.end(), [&](size_t a, size_t b) {
    return order == Order::kAscending ? is_less(heap, keys[a], keys[b]) : is_less(heap, keys[b], keys[a]);
  });
  Values out;
  for (const size_t i : positions) out.push_back(items[i]);
  return out;
}

Case case_of(const Signature& signature, size_t idx) {
  return signature.flag(idx) ? Case::kKeep : Case::kIgnore;
}
Order order_of(const Signature& signature, size_t idx) {
  return signature.flag(idx) ? Order::kDescending : Order::kAscending;
}

Value sort_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (signature.has(2) && signature.value(2).is(Kind::kText)) {
    for (const std::string_view path : split(heap, signature.text(2), ",", -1, Side::kLeft))
      paths.emplace_back(heap, heap.text(path));
  } else {
    paths.emplace_back(heap, signature.value(2));
  }
  const SharedValues items = iterate(heap, subject);
  Values keys;
  for (const Value& item : items) {
    Values key;
    for (const AttributePath& path : paths)
      key.push_back(comparable(heap, path.find(heap, item), case_of(signature, 1)));
    keys.push_back(heap.list(std::move(key)));
  }
  return heap.list(sorted(heap, items.all(), keys, order_of(signature, 0)));
}

Value dictsort(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = signature.has(1) ? signature.text(1) : "key";
  if (by != "key" && by != "value") heap.fail("dictsort sorts by 'key' or 'value', not by '{}'", by);
  if (subject.is(Kind::kUndefined)) heap.fail_undefined(subject);
  if (!subject.is(Kind::kDict))
    heap.fail("the filter 'dictsort' needs a mapping, not '{}'", type_name(subject));
  const SharedValues items = iterate(heap, heap.view(subject, ViewOf::kItems));
  Values keys;
  for (const Value& item : items)
    keys.push_back(comparable(heap, item.items()[by == "key" ? 0 : 1], case_of(signature, 0)));
  return heap.list(sorted(heap, items.all(), keys, order_of(signature, 2)));
}

Value unique(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(heap, signature.value(1));
  const auto is_before = [&](const Value& a, const Value& b) { return compare_keys(heap, a, b) < 0; };
  std::set<Value, decltype(is_before)> seen(is_before);
  return generate(heap, [&](Values& out) {
    for (const Value& item : iterate(heap, subject)) {
      Value key = comparable(heap, path.find(heap, item), case_of(signature, 0));
      if (!is_hashable(heap, key)) heap.fail("unhashable type: '{}'", type_name(key));
      if (seen.insert(std::move(key)).second) out.push_back(item);
    }
  });
}

template <Order kOrder>
Value extreme(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "min or max", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(heap, signature.value(1));
  Value best, best_key;
  for (const Value& item : iterate(heap, subject)) {
    Value key = comparable(heap, path.find(heap, item), case_of(signature, 0));
    const bool is_better =
        best.is(Kind::kMissing) ||
        (kOrder == Order::kAscending ? is_less(heap, key, best_key) : is_less(heap, best_key, key));
    if (!is_better) continue;
    best = item;
    best_key = std::move(key);
  }
  return best.is(Kind::kMissing) ? heap.undefined_hint("No aggregated item, sequence was empty.") : best;
}

Value sum(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "sum", arguments, {"attribute", "start"});
  const AttributePath path(heap, signature.value(0));
  Value total = signature.value_or(1, Value::integer(0));
  if (total.is(Kind::kText)) heap.fail("sum() can't sum strings; use the filter join");
  for (const Value& item : iterate(heap, subject))
    total = binary(heap, BinaryOp::kAdd, total, path.find(heap, item));
  return total;
}

Value batch(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "batch", arguments, {"linecount", "fill_with"}, 1);
  const Integer size = signature.integer(0);
  return generate(heap, [&](Values& rows) {
    Values row;
    for (const Value& item : iterate(heap, subject)) {
      if (static_cast<Integer>(row.size()) == size) rows.push_back(heap.list(std::exchange(row, {})));
      row.push_back(item);
    }
    if (row.empty()) return;
    const bool is_filled = signature.has(1) && !signature.value(1).is(Kind::kNone);
    const Integer missing = size - static_cast<Integer>(row.size());
    if (is_filled && missing > 0) {
      heap.require_room(missing, sizeof(Value));
      row.insert(row.end(), static_cast<size_t>(missing), signature.value(1));
    }
    rows.push_back(heap.list(std::move(row)));
  });
}

Value slice(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "slice", arguments, {"slices", "fill_with"}, 1);
  const Integer num_slices = signature.integer(0);
  return generate(heap, [&](Values& rows) {
    const SharedValues items = iterate(heap, subject);
    if (num_slices == 0) heap.fail("integer division or modulo by zero");
    if (num_slices < 0) return;
    heap.require_room(num_slices, sizeof(Value));
    const auto size = static_cast<Integer>(items.size());
    const bool is_filled = signature.has(1) && !signature.value(1).is(Kind::kNone);
    auto at = items.begin();
    for (Integer i = 0; i < num_slices; ++i) {
      heap.step();
      const bool has_extra = i < size % num_slices;
      const auto end = at + static_cast<std::ptrdiff_t>(size / num_slices + (has_extra ? 1 : 0));
      Values row(at, end);
      if (is_filled && !has_extra) row.push_back(signature.value(1));
      rows.push_back(heap.list(std::move(row)));
      at = end;
    }
  });
}

Value groupby(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(heap, signature.value(0));
  const SharedValues items = iterate(heap, subject);
  const auto key_of = [&](const Value& item) {
    return comparable(heap, path.find(heap, item, signature.value(1)), case_of(signature, 2));
  };
  Values keys;
  for (const Value& item : items) keys.push_back(key_of(item));
  const Values ordered = sorted(heap, items.all(), keys, Order::kAscending);
  Values groups;
  for (size_t i = 0; i < ordered.size();) {
    const Value key = key_of(ordered[i]);
    Values members = {ordered[i++]};
    while (i < ordered.size() && equals(heap, key_of(ordered[i]), key)) members.push_back(ordered[i++]);
    Value grouper = path.find(heap, members.front(), signature.value(1));  // as it was written
    groups.push_back(heap.group(std::move(grouper), heap.list(std::move(members))));
  }
  return heap.list(std::move(groups));
}

constexpr std::array kSequenceFilters = {
    FilterEntry{"attr", attr},
    FilterEntry{"batch", batch},
    FilterEntry{"count", length_filter},
    FilterEntry{"d", default_filter},
    FilterEntry{"default", default_filter},
    FilterEntry{"dictsort", dictsort},
    FilterEntry{"first", first},
    FilterEntry{"groupby", groupby},
    FilterEntry{"items", items_filter},
    FilterEntry{"join", join},
    FilterEntry{"last", last},
    FilterEntry{"length", length_filter},
    FilterEntry{"list", list},
    FilterEntry{"max", extreme<Order::kDescending>},
    FilterEntry{"min", extreme<Order::kAscending>},
    FilterEntry{"reverse", reverse_filter},
    FilterEntry{"slice", slice},
    FilterEntry{"sort", sort_filter},
    FilterEntry{"sum", sum},
    FilterEntry{"unique", unique},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kSequenceFilters; }

}  // namespace lockstep::serving::jinja
