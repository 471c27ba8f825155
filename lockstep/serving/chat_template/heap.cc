#include "lockstep/serving/chat_template/heap.h"

#include <algorithm>

#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

// What an object costs beside its contents: control block, header, allocator.
constexpr size_t kObjectBytes = 96;

int height_above(const Values& items) {
  int height = 0;
  for (const Value& item : items) height = std::max(height, item.height());
  return height + 1;
}

// How Jinja names a type in "... has no attribute".
std::string subject_of(const Value& object) {
  switch (object.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kNamespace:
      return "jinja2.utils.Namespace object";
    case Kind::kLoop:
      return "jinja2.runtime.LoopContext object";
    case Kind::kMacro:
      return "jinja2.runtime.Macro object";
    default:
      return fmt::format("{} object", type_name(object));
  }
}

}  // namespace

Heap::Heap(const RenderLimits& limits) : limits_(limits) { meter_.max_bytes = limits.max_memory_bytes; }

Heap::~Heap() {
  // Two passes: emptying one namespace may drop the last reference to another's contents, never to a
  // namespace.
  for (const auto& one : namespaces_) one->attributes.clear();
}

void Heap::fail_undefined(const Value& undefined) const {
  fail("{}", undefined.undefined_reason().message());
}

void Heap::fail_steps() const {
  fail("the template takes more than {} steps (the limit on its work)", limits_.max_steps);
}

void Heap::fail_memory(size_t num_bytes) const {
  fail("the template needs {} bytes more than the {} it holds; its limit is {}", num_bytes, meter_.live_bytes,
       meter_.max_bytes);
}

void Heap::require_room(Integer count, size_t each) const {
  if (count <= 0) return;
  const Integer num_bytes =
      count > Integer{meter_.max_bytes} ? Integer{meter_.max_bytes} + 1 : count * Integer{each};
  require_room(static_cast<size_t>(std::min(num_bytes, Integer{meter_.max_bytes} + 1)));
}

void Heap::require_height(int height) const {
  if (height > kMaxValueDepth) fail("values are nested deeper than {} levels", kMaxValueDepth);
}

Charge Heap::charge(size_t num_bytes) {
  require_room(num_bytes);
  return Charge(meter_, num_bytes);
}

Value Heap::make_text(std::string bytes, bool is_markup) {
  work(bytes.size());
  auto text = std::make_shared<Text>();
  text->charge = charge(bytes.size() + kObjectBytes);
  text->num_chars = count_chars(bytes);
  text->is_markup = is_markup;
  text->bytes = std::move(bytes);
  return Value(Value::Variant(std::shared_ptr<const Text>(std::move(text))));
}

Value Heap::text(std::string bytes) { return make_text(std::move(bytes), false); }
Value Heap::markup(std::string bytes) { return make_text(std::move(bytes), true); }
Value Heap::text_like(const Value& original, std::string bytes) {
  return make_text(std::move(bytes), original.is(Kind::kText) && original.text().is_markup);
}

Value Heap::list(Values items) {
  step(items.size() / 8);
  auto list = std::make_shared<List>();
  list->charge = charge(items.size() * sizeof(Value) + kObjectBytes);
  list->height = height_above(items);
  require_height(list->height);
  list->items = std::move(items);
  return Value(Value::Variant(std::shared_ptr<const List>(std::move(list))));
}

Value Heap::tuple(Values items) {
  step(items.size() / 8);
  auto tuple = std::make_shared<Tuple>();
  tuple->charge = charge(items.size() * sizeof(Value) + kObjectBytes);
  tuple->height = height_above(items);
  require_height(tuple->height);
  tuple->items = std::move(items);
  return Value(Value::Variant(std::shared_ptr<const Tuple>(std::move(tuple))));
}

Value Heap::group(Value grouper, Value items) {
  auto row = std::make_shared<Tuple>();
  row->charge = charge(2 * sizeof(Value) + kObjectBytes);
  row->is_group = true;
  row->items = {std::move(grouper), std::move(items)};
  row->height = height_above(row->items);
  require_height(row->height);
  return Value(Value::Variant(std::shared_ptr<const Tuple>(std::move(row))));
}

Value Heap::dict(std::vector<Dict::Entry> entries) {
  auto dict = std::make_shared<const Dict>(*this, std::move(entries));
  require_height(dict->height());
  return Value(Value::Variant(std::move(dict)));
}

Value Heap::range(Range range) const {
  return Value(Value::Variant(std::shared_ptr<const Range>(std::make_shared<Range>(range))));
}

Value Heap::view(const Value& dict, ViewOf part) {
  return Value(Value::Variant(
      std::shared_ptr<const DictView>(std::make_shared<DictView>(DictView{dict.dict_ref(), part}))));
}

Value Heap::iterator(Values items, std::string failure) {
  step(items.size() / 8);
  auto iterator = std::make_shared<Iterator>();
  iterator->charge = charge(items.size() * sizeof(Value) + kObjectBytes);
  iterator->height = height_above(items);
  require_height(iterator->height);
  iterator->items = std::move(items);
  iterator->failure = std::move(failure);
  return Value(Value::Variant(std::move(iterator)));
}

Value Heap::new_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  auto space = std::make_shared<Namespace>();
  space->charge = charge(attributes.size() * (sizeof(Value) + kObjectBytes) + 2 * kObjectBytes);
  space->attributes = std::move(attributes);
  namespaces_.push_back(space);
  return Value(Value::Variant(std::move(space)));
}

Value Heap::method(const Value& self, const MethodEntry& entry) {
  return Value(Value::Variant(
      std::shared_ptr<const BoundMethod>(std::make_shared<BoundMethod>(BoundMethod{self, &entry}))));
}

Value Heap::undefined(UndefinedReason::Form form, std::string name, std::string subject) {
  auto reason = std::make_shared<UndefinedReason>();
  reason->form = form;
  reason->charge = charge(name.size() + kObjectBytes);
  reason->name = std::move(name);
  reason->subject = std::move(subject);
  return Value(Value::Variant(std::shared_ptr<const UndefinedReason>(std::move(reason))));
}

Value Heap::undefined_name(std::string_view name) {
  return undefined(UndefinedReason::Form::kName, fmt::format("'{}'", name), {});
}

Value Heap::undefined_attribute(const Value& object, std::string_view name) {
  return undefined(UndefinedReason::Form::kAttribute, fmt::format("'{}'", name), subject_of(object));
}

Value Heap::undefined_element(const Value& object, const Value& key) {
  const auto form = key.is(Kind::kText) ? UndefinedReason::Form::kAttribute : UndefinedReason::Form::kElement;
  return undefined(form, repr(*this, key), subject_of(object));
}

Value Heap::undefined_hint(std::string message) {
  return undefined(UndefinedReason::Form::kSentence, std::move(message), {});
}

TextBuilder& TextBuilder::operator+=(std::string_view piece) {
  heap_.step((bytes_.size() % 64 + piece.size()) / 64);
  heap_.require_room(piece.size());
  charge_.grow(piece.size());
  bytes_ += piece;
  return *this;
}

TextBuilder& TextBuilder::repeat(std::string_view piece, Integer count) {
  if (count <= 0 || piece.empty()) return *this;
  heap_.require_room(count, piece.size());
  const auto num_times = static_cast<size_t>(count);
  heap_.work(num_times * piece.size());
  charge_.grow(num_times * piece.size());
  if (piece.size() == 1) {
    bytes_.append(num_times, piece.front());
    return *this;
  }
  bytes_.reserve(bytes_.size() + num_times * piece.size());
  for (size_t i = 0; i < num_times; ++i) bytes_ += piece;
  return *this;
}

Value constant_text(std::string bytes) {
  auto text = std::make_shared<Text>();
  text->num_chars = count_chars(bytes);
  text->bytes = std::move(bytes);
  return Value(Value::Variant(std::shared_ptr<const Text>(std::move(text))));
}

}  // namespace lockstep::serving::jinja
