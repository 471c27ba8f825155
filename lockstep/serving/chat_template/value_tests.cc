#include "lockstep/serving/chat_template/value_tests.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/filters.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

template <Kind kKind>
bool is_kind(Heap&, const Value& value, const Values&) {
  return value.is(kKind);
}

template <CompareOp kOp>
bool compares(Heap& heap, const Value& value, const Values& arguments) {
  return compare(heap, kOp, value, arguments[0]);
}

bool is_defined(Heap&, const Value& value, const Values&) { return !value.is(Kind::kUndefined); }
bool is_number(Heap&, const Value& value, const Values&) { return value.is_number(); }
bool is_bool_true(Heap&, const Value& value, const Values&) {
  return value.is(Kind::kBool) && value.to_bool();
}
bool is_bool_false(Heap&, const Value& value, const Values&) {
  return value.is(Kind::kBool) && !value.to_bool();
}

bool has_rest(Heap& heap, const Value& value, const Value& divisor, Integer rest) {
  return equals(heap, binary(heap, BinaryOp::kModulo, value, divisor), Value::integer(rest));
}
bool is_odd(Heap& heap, const Value& value, const Values&) {
  return has_rest(heap, value, Value::integer(2), 1);
}
bool is_even(Heap& heap, const Value& value, const Values&) {
  return has_rest(heap, value, Value::integer(2), 0);
}
bool is_divisible(Heap& heap, const Value& value, const Values& arguments) {
  return has_rest(heap, value, arguments[0], 0);
}

bool is_sequence(Heap&, const Value& value, const Values&) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
      return true;
    default:
      return false;
  }
}

bool is_iterable_value(Heap&, const Value& value, const Values&) { return is_iterable(value); }

bool is_callable(Heap&, const Value& value, const Values&) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kMethod:
    case Kind::kFunction:
      return true;
    default:
      return false;
  }
}

// `is` of Python: the same object. Values that are held by value are the same when they are equal and of one
// type.
bool is_same(Heap& heap, const Value& value, const Values& arguments) {
  const Value& other = arguments[0];
  if (value.kind() != other.kind()) return false;
  if (value.is(Kind::kText) || value.identity() == nullptr) return equals(heap, value, other);
  return value.identity() == other.identity();
}

bool is_escaped(Heap&, const Value& value, const Values&) {
  return value.is(Kind::kText) && value.text().is_markup;
}

// Cased characters are there, and all are of the wanted case.
bool is_of_case(Heap& heap, const Value& value, bool (*is_wanted)(char32_t), bool (*is_other)(char32_t)) {
  const Value text = to_text(heap, value);
  heap.work(text.view().size() * 8);
  bool any = false;
  for (size_t offset = 0; offset < text.view().size();) {
    const char32_t c = next_char(text.view(), offset);
    if (is_other(c) || is_title(c)) return false;
    any = any || is_wanted(c);
  }
  return any;
}
bool is_lower_text(Heap& heap, const Value& value, const Values&) {
  return is_of_case(heap, value, is_lower, is_upper);
}
bool is_upper_text(Heap& heap, const Value& value, const Values&) {
  return is_of_case(heap, value, is_upper, is_lower);
}

bool names_filter(Heap&, const Value& value, const Values&) {
  return value.is(Kind::kText) && find_filter(value.view()) != nullptr;
}
bool names_test(Heap&, const Value& value, const Values&) {
  return value.is(Kind::kText) && find_test(value.view()) != nullptr;
}

constexpr std::array kTests = {
    TestEntry{"!=", 1, compares<CompareOp::kNotEqual>},
    TestEntry{"<", 1, compares<CompareOp::kLess>},
    TestEntry{"<=", 1, compares<CompareOp::kLessEqual>},
    TestEntry{"==", 1, compares<CompareOp::kEqual>},
    TestEntry{">", 1, compares<CompareOp::kGreater>},
    TestEntry{">=", 1, compares<CompareOp::kGreaterEqual>},
    TestEntry{"boolean", 0, is_kind<Kind::kBool>},
    TestEntry{"callable", 0, is_callable},
    TestEntry{"defined", 0, is_defined},
    TestEntry{"divisibleby", 1, is_divisible},
    TestEntry{"eq", 1, compares<CompareOp::kEqual>},
    TestEntry{"equalto", 1, compares<CompareOp::kEqual>},
    TestEntry{"escaped", 0, is_escaped},
    TestEntry{"even", 0, is_even},
    TestEntry{"false", 0, is_bool_false},
    TestEntry{"filter", 0, names_filter},
    TestEntry{"float", 0, is_kind<Kind::kFloat>},
    TestEntry{"ge", 1, compares<CompareOp::kGreaterEqual>},
    TestEntry{"greaterthan", 1, compares<CompareOp::kGreater>},
    TestEntry{"gt", 1, compares<CompareOp::kGreater>},
    TestEntry{"in", 1, compares<CompareOp::kIn>},
    TestEntry{"integer", 0, is_kind<Kind::kInt>},
    TestEntry{"iterable", 0, is_iterable_value},
    TestEntry{"le", 1, compares<CompareOp::kLessEqual>},
    TestEntry{"lessthan", 1, compares<CompareOp::kLess>},
    TestEntry{"lower", 0, is_lower_text},
    TestEntry{"lt", 1, compares<CompareOp::kLess>},
    TestEntry{"mapping", 0, is_kind<Kind::kDict>},
    TestEntry{"ne", 1, compares<CompareOp::kNotEqual>},
    TestEntry{"none", 0, is_kind<Kind::kNone>},
    TestEntry{"number", 0, is_number},
    TestEntry{"odd", 0, is_odd},
    TestEntry{"sameas", 1, is_same},
    TestEntry{"sequence", 0, is_sequence},
    TestEntry{"string", 0, is_kind<Kind::kText>},
    TestEntry{"test", 0, names_test},
    TestEntry{"true", 0, is_bool_true},
    TestEntry{"undefined", 0, is_kind<Kind::kUndefined>},
    TestEntry{"upper", 0, is_upper_text},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto found =
      std::find_if(kTests.begin(), kTests.end(), [&](const TestEntry& test) { return test.name == name; });
  return found != kTests.end() ? &*found : nullptr;
}

bool run_test(Heap& heap, const TestEntry& test, const Value& subject, const CallArguments& arguments) {
  heap.step();
  if (!arguments.keywords.empty())
    heap.fail("the test '{}' got an unexpected keyword argument '{}'", test.name,
              arguments.keywords.front().first);
  if (arguments.positional.size() != test.num_arguments)
    heap.fail("the test '{}' takes {} arguments ({} given)", test.name, test.num_arguments,
              arguments.positional.size());
  return test.holds(heap, subject, arguments.positional);
}

}  // namespace lockstep::serving::jinja
