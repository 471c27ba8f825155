#pragma once
// Python's operators on values: arithmetic, concatenation, repetition, equality and order, with its error
// messages.
#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

enum class BinaryOp : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
enum class Sign : uint8_t { kPlus, kMinus };

std::string_view symbol(BinaryOp op);

bool is_true(const Value& value);
bool equals(Heap& heap, const Value& a, const Value& b);
bool compare(Heap& heap, CompareOp op, const Value& a, const Value& b);
bool is_less(Heap& heap, const Value& a, const Value& b);
// <0, 0, >0, or nothing where one is NaN. Both are numbers.
std::optional<int> compare_numbers(const Value& a, const Value& b);

Value binary(Heap& heap, BinaryOp op, const Value& a, const Value& b);
Value unary(Heap& heap, Sign sign, const Value& value);

// A number as Python's float; fails on other kinds.
double as_real(Heap& heap, const Value& number);
double integer_to_real(Integer value);
// The integer part of a finite double; fails where it needs more than 128 bits, or is no number.
Integer truncate(Heap& heap, double value);

}  // namespace lockstep::serving::jinja
