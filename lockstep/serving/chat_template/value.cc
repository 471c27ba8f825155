#include "lockstep/serving/chat_template/value.h"

#include <fmt/format.h>

#include "lockstep/serving/chat_template/dict.h"

namespace lockstep::serving::jinja {

std::string UndefinedReason::message() const {
  switch (form) {
    case Form::kName:
      return fmt::format("{} is undefined", name);
    case Form::kAttribute:
      return fmt::format("'{}' has no attribute {}", subject, name);
    case Form::kElement:
      return fmt::format("{} has no element {}", subject, name);
    case Form::kSentence:
      break;
  }
  return name;
}

Integer Range::size() const {
  if (step > 0) return stop > start ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

const Sequence& Value::sequence() const {
  if (is(Kind::kList)) return *ref<std::shared_ptr<const List>>();
  return *ref<std::shared_ptr<const Tuple>>();
}

int Value::height() const {
  if (is_sequence()) return sequence().height;
  if (is(Kind::kDict)) return dict().height();
  if (is(Kind::kView)) return ref<std::shared_ptr<const DictView>>()->dict->height() + 1;
  if (is(Kind::kIterator)) return ref<std::shared_ptr<Iterator>>()->height;
  return is(Kind::kMethod) ? ref<std::shared_ptr<const BoundMethod>>()->self.height() + 1 : 0;
}

const void* Value::identity() const {
  return std::visit(
      [](const auto& content) -> const void* {
        if constexpr (requires { content.get(); })
          return content.get();
        else
          return nullptr;
      },
      content_);
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return value.text().is_markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      switch (value.ref<std::shared_ptr<const DictView>>()->part) {
        case ViewOf::kKeys:
          return "dict_keys";
        case ViewOf::kValues:
          return "dict_values";
        case ViewOf::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kFunction:
      return "function";
  }
  return "object";
}

}  // namespace lockstep::serving::jinja
