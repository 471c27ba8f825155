#include "lockstep/serving/chat_template/operators.h"

#include <cmath>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/formatting.h"
#include "lockstep/serving/chat_template/printing.h"

namespace lockstep::serving::jinja {
namespace {

constexpr double kTwoTo127 = 0x1p127;

[[noreturn]] void fail_types(Heap& heap, BinaryOp op, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) heap.fail_undefined(a);
  if (b.is(Kind::kUndefined)) heap.fail_undefined(b);
  if (op == BinaryOp::kAdd && (a.is(Kind::kText) || a.is_sequence()))
    heap.fail("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b));
  heap.fail("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

[[noreturn]] void fail_overflow(Heap& heap, BinaryOp op) {
  heap.fail("the result of {} is an integer of more than 128 bits, which is not supported", symbol(op));
}

Integer floor_divide(Integer a, Integer b) {
  const Integer quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

double floor_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

// As Python does it: from the remainder, so that quotient and remainder fit together.
double floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value power_of_reals(Heap& heap, double base, double exponent) {
  if (base == 0 && exponent < 0) heap.fail("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) && exponent != std::floor(exponent))
    heap.fail("a negative number to a fractional power is complex, which is not supported");
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    heap.fail("the result of ** is too large");
  return Value::real(result);
}

Value power_of_integers(Heap& heap, Integer base, Integer exponent) {
  if (exponent < 0) return power_of_reals(heap, integer_to_real(base), integer_to_real(exponent));
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? Integer{1} : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  Integer result = 1;
  for (Integer i = 0; i < exponent; ++i)  // |base| > 1: overflows within 127 rounds
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow(heap, BinaryOp::kPower);
  return Value::integer(result);
}

Value on_integers(Heap& heap, BinaryOp op, Integer a, Integer b) {
  Integer result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::kPower:
      return power_of_integers(heap, a, b);
    case BinaryOp::kDivide:
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo:
      if (b == 0)
        heap.fail("{}", op == BinaryOp::kDivide ? "division by zero" : "integer division or modulo by zero");
      if (op == BinaryOp::kDivide) return Value::real(integer_to_real(a) / integer_to_real(b));
      if (b == -1) {  // the one quotient that can overflow
        overflow = op == BinaryOp::kFloorDivide && __builtin_sub_overflow(Integer{0}, a, &result);
        break;
      }
      result = op == BinaryOp::kFloorDivide ? floor_divide(a, b) : a - floor_divide(a, b) * b;
      break;
  }
  if (overflow) fail_overflow(heap, op);
  return Value::integer(result);
}

Value on_reals(Heap& heap, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(a + b);
    case BinaryOp::kSubtract:
      return Value::real(a - b);
    case BinaryOp::kMultiply:
      return Value::real(a * b);
    case BinaryOp::kPower:
      return power_of_reals(heap, a, b);
    case BinaryOp::kDivide:
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo:
      break;
  }
  if (b == 0) heap.fail("float division by zero");
  if (op == BinaryOp::kDivide) return Value::real(a / b);
  return Value::real(op == BinaryOp::kFloorDivide ? floor_divide(a, b) : floor_modulo(a, b));
}

Value concatenate_texts(Heap& heap, const Value& a, const Value& b) {
  heap.require_room(a.view().size() + b.view().size());
  if (a.text().is_markup || b.text().is_markup) {
    const Value left = escape(heap, a);
    const Value right = escape(heap, b);
    return heap.markup(fmt::format("{}{}", left.view(), right.view()));
  }
  std::string joined;
  joined.reserve(a.view().size() + b.view().size());
  joined += a.view();
  joined += b.view();
  return heap.text(std::move(joined));
}

Value concatenate_sequences(Heap& heap, const Value& a, const Value& b) {
  heap.require_room((a.items().size() + b.items().size()) * sizeof(Value));
  Values joined = a.items();
  joined.insert(joined.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? heap.list(std::move(joined)) : heap.tuple(std::move(joined));
}

Value repeat(Heap& heap, const Value& value, Integer count) {
  if (value.is(Kind::kText)) {
    TextBuilder out(heap);
    out.repeat(value.view(), count);
    return heap.text_like(value, out.take());
  }
  const Values& items = value.items();
  heap.require_room(count, items.size() * sizeof(Value));
  Values repeated;
  for (Integer i = 0; i < count && !items.empty(); ++i) {
    heap.step(items.size());
    repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return value.is(Kind::kList) ? heap.list(std::move(repeated)) : heap.tuple(std::move(repeated));
}

bool can_repeat(const Value& value) { return value.is(Kind::kText) || value.is_sequence(); }

bool equal_items(Heap& heap, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equals(heap, a[i], b[i])) return false;
  return true;
}

bool equal_dicts(Heap& heap, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(heap, key);
    if (other == nullptr || !equals(heap, value, *other)) return false;
  }
  return true;
}

// Keys and items of dictionaries are sets; values are equal to nothing but themselves.
bool equal_views(Heap& heap, const Value& a, const Value& b) {
  const DictView& left = *a.ref<std::shared_ptr<const DictView>>();
  const DictView& right = *b.ref<std::shared_ptr<const DictView>>();
  if (left.part == ViewOf::kValues || right.part == ViewOf::kValues) return false;
  if (left.dict->size() != right.dict->size()) return false;
  for (const Value& item : iterate(heap, a))
    if (!contains(heap, b, item)) return false;
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  const Integer size = a.size();
  if (size != b.size()) return false;
  return size == 0 || (a.start == b.start && (size == 1 || a.step == b.step));
}

std::string_view symbol(CompareOp op) {
  switch (op) {
    case CompareOp::kLess:
      return "<";
    case CompareOp::kLessEqual:
      return "<=";
    case CompareOp::kGreater:
      return ">";
    default:
      return ">=";
  }
}

bool holds(CompareOp op, int order) {
  switch (op) {
    case CompareOp::kLess:
      return order < 0;
    case CompareOp::kLessEqual:
      return order <= 0;
    case CompareOp::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool ordered(Heap& heap, CompareOp op, const Value& a, const Value& b);

bool ordered_items(Heap& heap, CompareOp op, const Values& a, const Values& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (!equals(heap, a[i], b[i])) return ordered(heap, op, a[i], b[i]);
  return holds(op, a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0);
}

bool ordered(Heap& heap, CompareOp op, const Value& a, const Value& b) {
  heap.step();
  if (a.is_number() && b.is_number()) {
    const auto order = compare_numbers(a, b);
    return order && holds(op, *order);
  }
  if (a.is(Kind::kText) && b.is(Kind::kText)) {
    heap.work(std::min(a.view().size(), b.view().size()));
    return holds(op, a.view().compare(b.view()));
  }
  if (a.is_sequence() && a.kind() == b.kind()) return ordered_items(heap, op, a.items(), b.items());
  if (a.is(Kind::kUndefined)) heap.fail_undefined(a);
  if (b.is(Kind::kUndefined)) heap.fail_undefined(b);
  heap.fail("'{}' not supported between instances of '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

// <0, 0, >0 of an integer against a double that is no NaN, exactly.
int compare_exactly(Integer a, double b) {
  if (b >= kTwoTo127) return -1;
  if (b < -kTwoTo127) return 1;
  const double whole = std::trunc(b);
  const auto truncated = static_cast<Integer>(whole);
  if (a != truncated) return a < truncated ? -1 : 1;
  return whole < b ? -1 : whole > b ? 1 : 0;
}

}  // namespace

std::string_view symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSubtract:
      return "-";
    case BinaryOp::kMultiply:
      return "*";
    case BinaryOp::kDivide:
      return "/";
    case BinaryOp::kFloorDivide:
      return "//";
    case BinaryOp::kModulo:
      return "%";
    case BinaryOp::kPower:
      return "** or pow()";
  }
  return "?";
}

std::optional<int> compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    const Integer x = a.to_integer();
    const Integer y = b.to_integer();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) {
    const double x = a.to_real();
    const double y = b.to_real();
    if (std::isnan(x) || std::isnan(y)) return std::nullopt;
    return x < y ? -1 : x > y ? 1 : 0;
  }
  const double real = a.is(Kind::kFloat) ? a.to_real() : b.to_real();
  if (std::isnan(real)) return std::nullopt;
  return a.is(Kind::kFloat) ? -compare_exactly(b.to_integer(), real) : compare_exactly(a.to_integer(), real);
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.to_bool();
    case Kind::kInt:
      return value.to_integer() != 0;
    case Kind::kFloat:
      return value.to_real() != 0;
    case Kind::kText:
      return !value.view().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return value.dict().size() != 0;
    case Kind::kRange:
      return value.ref<std::shared_ptr<const Range>>()->size() != 0;
    case Kind::kView:
      return value.ref<std::shared_ptr<const DictView>>()->dict->size() != 0;
    default:
      return true;
  }
}

bool equals(Heap& heap, const Value& a, const Value& b) {
  heap.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.identity() != nullptr && a.identity() == b.identity()) return true;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      heap.work(std::min(a.view().size(), b.view().size()));
      return a.view() == b.view();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(heap, a.items(), b.items());
    case Kind::kDict:
      return equal_dicts(heap, a.dict(), b.dict());
    case Kind::kRange:
      return equal_ranges(*a.ref<std::shared_ptr<const Range>>(), *b.ref<std::shared_ptr<const Range>>());
    case Kind::kView:
      return equal_views(heap, a, b);
    case Kind::kFunction:
      return a.ref<const FunctionEntry*>() == b.ref<const FunctionEntry*>();
    default:
      return false;
  }
}

bool compare(Heap& heap, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEqual:
      return equals(heap, a, b);
    case CompareOp::kNotEqual:
      return !equals(heap, a, b);
    case CompareOp::kIn:
      return contains(heap, b, a);
    case CompareOp::kNotIn:
      return !contains(heap, b, a);
    default:
      return ordered(heap, op, a, b);
  }
}

bool is_less(Heap& heap, const Value& a, const Value& b) { return ordered(heap, CompareOp::kLess, a, b); }

Value binary(Heap& heap, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return on_integers(heap, op, a.to_integer(), b.to_integer());
  if (a.is_number() && b.is_number()) return on_reals(heap, op, as_real(heap, a), as_real(heap, b));
  if (op == BinaryOp::kModulo && a.is(Kind::kText)) return format_printf(heap, a, b);
  if (op == BinaryOp::kAdd) {
    if (a.is(Kind::kText) && b.is(Kind::kText)) return concatenate_texts(heap, a, b);
    if (a.is_sequence() && a.kind() == b.kind()) return concatenate_sequences(heap, a, b);
  }
  if (op == BinaryOp::kMultiply) {
    if (can_repeat(a) && b.is_integral()) return repeat(heap, a, b.to_integer());
    if (can_repeat(b) && a.is_integral()) return repeat(heap, b, a.to_integer());
  }
  fail_types(heap, op, a, b);
}

Value unary(Heap& heap, Sign sign, const Value& value) {
  if (value.is(Kind::kUndefined)) heap.fail_undefined(value);
  if (!value.is_number())
    heap.fail("bad operand type for unary {}: '{}'", sign == Sign::kMinus ? '-' : '+', type_name(value));
  if (value.is(Kind::kFloat)) return Value::real(sign == Sign::kMinus ? -value.to_real() : value.to_real());
  if (sign == Sign::kPlus) return Value::integer(value.to_integer());
  return on_integers(heap, BinaryOp::kSubtract, 0, value.to_integer());
}

double integer_to_real(Integer value) { return static_cast<double>(value); }

double as_real(Heap& heap, const Value& number) {
  if (number.is(Kind::kFloat)) return number.to_real();
  if (number.is(Kind::kUndefined)) heap.fail_undefined(number);
  if (!number.is_integral()) heap.fail("a number is needed here, not '{}'", type_name(number));
  return integer_to_real(number.to_integer());
}

Integer truncate(Heap& heap, double value) {
  if (std::isnan(value)) heap.fail("cannot convert float NaN to integer");
  if (std::isinf(value)) heap.fail("cannot convert float infinity to integer");
  if (value >= kTwoTo127 || value < -kTwoTo127)
    heap.fail("{} needs an integer of more than 128 bits, which is not supported", value);
  return static_cast<Integer>(value);
}

}  // namespace lockstep::serving::jinja
