// Filters that make numbers: int, float, round, abs.
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "lockstep/serving/chat_template/filters.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

// Digits with single underscores between them lose these; anything else that has underscores is no number.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_at = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
    };
    if (text[i] != '_')
      out += text[i];
    else if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1))
      return std::nullopt;
  }
  return out;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int letter = (c | 32) - 'a';
  return letter >= 0 && letter < 26 ? letter + 10 : 99;
}

// The base that a prefix names, and 0 for none.
int prefix_base(std::string_view digits) {
  if (digits.size() < 2 || digits[0] != '0') return 0;
  const char marker = static_cast<char>(digits[1] | 32);
  return marker == 'x' ? 16 : marker == 'o' ? 8 : marker == 'b' ? 2 : 0;
}

// Python's int(text, base). Nothing when it is no integer.
std::optional<Integer> parse_integer(Heap& heap, std::string_view text, Integer base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = strip_right(strip_left(text));
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const int prefix = prefix_base(text);
  const bool has_prefix = prefix != 0 && (base == 0 || base == prefix);
  if (has_prefix) {
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  }
  const int radix = base != 0 ? static_cast<int>(base) : prefix != 0 ? prefix : 10;
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  if (base == 0 && !has_prefix && digits->front() == '0' &&
      digits->find_first_not_of('0') != std::string::npos)
    return std::nullopt;
  Integer value = 0;
  for (const char c : *digits) {
    const int digit = digit_value(c);
    if (digit >= radix) return std::nullopt;
    const Integer step = is_negative ? -digit : digit;
    if (__builtin_mul_overflow(value, Integer{radix}, &value) || __builtin_add_overflow(value, step, &value))
      heap.fail("an integer of more than 128 bits is not supported");
  }
  return value;
}

// Python's float(text). Nothing when it is no number.
std::optional<double> parse_real(std::string_view text) {
  const auto digits = without_underscores(strip_right(strip_left(text)));
  if (!digits || digits->empty()) return std::nullopt;
  // strtod also takes hexadecimal and "nan(...)", Python does not.
  if (digits->find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  if (std::isspace(static_cast<unsigned char>(digits->front())) || digits->find('\0') != std::string::npos)
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits->c_str(), &end);
  if (end != digits->c_str() + digits->size()) return std::nullopt;
  return value;
}

Value int_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "int", arguments, {"default", "base"});
  if (subject.is(Kind::kUndefined)) heap.fail_undefined(subject);
  if (subject.is_integral()) return Value::integer(subject.to_integer());
  if (subject.is(Kind::kFloat) && !std::isnan(subject.to_real()))
    return Value::integer(truncate(heap, subject.to_real()));
  if (subject.is(Kind::kText)) {
    heap.work(subject.view().size() * 8);
    if (const auto value = parse_integer(heap, subject.view(), signature.integer_or(1, 10)))
      return Value::integer(*value);
    const auto real = parse_real(subject.view());
    if (real && std::isfinite(*real)) return Value::integer(truncate(heap, *real));
  }
  return signature.value_or(0, Value::integer(0));
}

Value float_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "float", arguments, {"default"});
  if (subject.is(Kind::kUndefined)) heap.fail_undefined(subject);
  if (subject.is_number()) return Value::real(as_real(heap, subject));
  if (subject.is(Kind::kText)) {
    heap.work(subject.view().size() * 8);
    if (const auto value = parse_real(subject.view())) return Value::real(*value);
  }
  return signature.value_or(0, Value::real(0.0));
}

// Correctly rounded, ties to even on the exact value: printed with so many digits and read back.
double round_real(Heap& heap, double value, Integer precision) {
  if (!std::isfinite(value) || precision > 400) return value;
  if (precision < -400) return std::copysign(0.0, value);
  if (precision >= 0) {
    const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(precision));
    return std::strtod(text.c_str(), nullptr);
  }
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  const double rounded = std::nearbyint(value / unit) * unit;
  if (!std::isfinite(rounded) && std::isfinite(unit)) heap.fail("the rounded number is too large");
  return std::isfinite(unit) ? rounded : std::copysign(0.0, value);
}

Integer round_integer(Heap& heap, Integer value, Integer precision) {
  if (precision >= 0) return value;
  if (precision < -38) return 0;
  Integer unit = 1;
  for (Integer i = precision; i < 0; ++i)
    if (__builtin_mul_overflow(unit, Integer{10}, &unit)) return 0;
  const Integer below = value >= 0 ? value / unit : -((-(value + 1)) / unit) - 1;  // floor
  const Integer rest = value - below * unit;
  const bool rounds_up = rest > unit - rest || (rest == unit - rest && below % 2 != 0);
  Integer rounded = 0;
  if (__builtin_mul_overflow(below + (rounds_up ? 1 : 0), unit, &rounded))
    heap.fail("the rounded number is too large");
  return rounded;
}

Value round_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "round", arguments, {"precision", "method"});
  const std::string_view method = signature.has(1) ? signature.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    heap.fail("method must be common, ceil or floor");
  if (subject.is(Kind::kUndefined)) heap.fail_undefined(subject);
  if (!subject.is_number()) heap.fail("type {} doesn't define __round__ method", type_name(subject));
  const Integer precision = signature.integer_or(0, 0);
  if (method == "common") {
    if (subject.is_integral()) return Value::integer(round_integer(heap, subject.to_integer(), precision));
    return Value::real(round_real(heap, subject.to_real(), precision));
  }
  const Value unit = binary(heap, BinaryOp::kPower, Value::integer(10), Value::integer(precision));
  const Value scaled = binary(heap, BinaryOp::kMultiply, subject, unit);
  Value whole = scaled;
  if (scaled.is(Kind::kFloat))
    whole = Value::integer(
        truncate(heap, method == "ceil" ? std::ceil(scaled.to_real()) : std::floor(scaled.to_real())));
  return binary(heap, BinaryOp::kDivide, whole, unit);
}

Value abs_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  Signature(heap, "abs", arguments, {});
  if (subject.is(Kind::kFloat)) return Value::real(std::abs(subject.to_real()));
  if (subject.is(Kind::kUndefined)) heap.fail_undefined(subject);
  if (!subject.is_integral()) heap.fail("bad operand type for abs(): '{}'", type_name(subject));
  return unary(heap, subject.to_integer() < 0 ? Sign::kMinus : Sign::kPlus, subject);
}

constexpr std::array kNumberFilters = {
    FilterEntry{"abs", abs_filter},
    FilterEntry{"float", float_filter},
    FilterEntry{"int", int_filter},
    FilterEntry{"round", round_filter},
};

}  // namespace

std::span<const FilterEntry> number_filters() { return kNumberFilters; }

}  // namespace lockstep::serving::jinja
