// The methods of list, tuple, dict and range, and of loops; which of them the sandbox hides.
#include <algorithm>
#include <array>
#include <span>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/loop.h"
#include "lockstep/serving/chat_template/methods.h"
#include "lockstep/serving/chat_template/operators.h"

namespace lockstep::serving::jinja {
namespace {

Value get(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "get", arguments, {"", ""}, 1);
  const Value* found = self.dict().find(heap, signature.value(0));
  return found != nullptr ? *found : signature.value_or(1, Value::none());
}

template <ViewOf kPart>
Value view(Heap& heap, const Value& self, const CallArguments& arguments) {
  Signature(heap, "keys, values or items", arguments, {});
  return heap.view(self, kPart);
}

Value copy(Heap& heap, const Value& self, const CallArguments& arguments) {
  Signature(heap, "copy", arguments, {});
  return self;  // nothing can change it
}

Value fromkeys(Heap& heap, const Value&, const CallArguments& arguments) {
  const Signature signature(heap, "fromkeys", arguments, {"", ""}, 1);
  const SharedValues keys = iterate(heap, signature.value(0));
  std::vector<Dict::Entry> entries;
  for (const Value& key : keys) entries.emplace_back(key, signature.value_or(1, Value::none()));
  return heap.dict(std::move(entries));
}

Value count(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "count", arguments, {""}, 1);
  const SharedValues items = iterate(heap, self);
  return Value::integer(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return equals(heap, item, signature.value(0)); }));
}

Value index(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Signature signature(heap, "index", arguments, {"", "", ""}, 1);
  const SharedValues items = iterate(heap, self);
  const auto size = static_cast<Integer>(items.size());
  const auto bound = [&](size_t idx, Integer fallback) {
    const Integer value = signature.integer_or(idx, fallback);
    return std::clamp(value < 0 ? std::max(value, -size) + size : value, Integer{0}, size);
  };
  const Integer stop = bound(2, size);
  for (Integer i = bound(1, 0); i < stop; ++i)
    if (equals(heap, items[static_cast<size_t>(i)], signature.value(0))) return Value::integer(i);
  heap.fail("the value given to {}.index() is not in it", type_name(self));
}

Value cycle(Heap& heap, const Value& self, const CallArguments& arguments) {
  const Loop& loop = *self.ref<std::shared_ptr<Loop>>();
  if (!arguments.keywords.empty()) heap.fail("cycle() takes no keyword arguments");
  if (arguments.positional.empty()) heap.fail("no items for cycling given");
  const Integer idx = std::max(loop.index0, Integer{0}) % static_cast<Integer>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(idx)];
}

Value changed(Heap& heap, const Value& self, const CallArguments& arguments) {
  Loop& loop = *self.ref<std::shared_ptr<Loop>>();
  if (!arguments.keywords.empty()) heap.fail("changed() takes no keyword arguments");
  const Value now = heap.tuple(arguments.positional);
  if (!loop.last_changed.is(Kind::kMissing) && equals(heap, loop.last_changed, now))
    return Value::boolean(false);
  if (loop.source != nullptr) loop.last_changed = now;  // an ended loop keeps nothing: it could keep itself
  return Value::boolean(true);
}

constexpr std::array kDictMethods = {
    MethodEntry{"copy", copy},
    MethodEntry{"fromkeys", fromkeys},
    MethodEntry{"get", get},
    MethodEntry{"items", view<ViewOf::kItems>},
    MethodEntry{"keys", view<ViewOf::kKeys>},
    MethodEntry{"values", view<ViewOf::kValues>},
};
constexpr std::array kListMethods = {MethodEntry{"copy", copy}, MethodEntry{"count", count},
                                     MethodEntry{"index", index}};
constexpr std::array kTupleMethods = {MethodEntry{"count", count}, MethodEntry{"index", index}};
constexpr std::array kLoopMethods = {MethodEntry{"changed", changed}, MethodEntry{"cycle", cycle}};

constexpr std::array<std::string_view, 5> kForbiddenOfDict = {"clear", "pop", "popitem", "setdefault",
                                                              "update"};
constexpr std::array<std::string_view, 8> kForbiddenOfList = {"append", "clear",  "extend",  "insert",
                                                              "pop",    "remove", "reverse", "sort"};

const MethodEntry* find_in(std::span<const MethodEntry> methods, std::string_view name) {
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const MethodEntry& entry) { return entry.name == name; });
  return found != methods.end() ? &*found : nullptr;
}

}  // namespace

const MethodEntry* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kText:
      return find_text_method(name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return find_in(kTupleMethods, name);
    case Kind::kLoop:
      return find_in(kLoopMethods, name);
    default:
      return nullptr;
  }
}

bool is_forbidden(const Value& self, std::string_view name) {
  const auto holds = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (self.is(Kind::kDict)) return holds(kForbiddenOfDict);
  return self.is(Kind::kList) && holds(kForbiddenOfList);
}

}  // namespace lockstep::serving::jinja
