// Texts and numbers under a format specification.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lockstep/serving/chat_template/formatting.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

void append_padded(TextBuilder& out, std::string_view prefix, std::string_view body, const FormatSpec& spec,
                   char default_align) {
  const Integer missing = spec.width - static_cast<Integer>(count_chars(prefix) + count_chars(body));
  const Integer padding = std::max(missing, Integer{0});
  std::string fill;
  append_char(fill, spec.fill);
  const char align = spec.align != 0 ? spec.align : default_align;
  const Integer before = align == '>' ? padding : align == '^' ? padding / 2 : 0;
  out.repeat(fill, before);
  out += prefix;
  if (align == '=') out.repeat(fill, padding);
  out += body;
  if (align != '=') out.repeat(fill, padding - before);
}

std::string sign_of(bool is_negative, const FormatSpec& spec) {
  if (is_negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string digits_in_base(Integer magnitude, int base, bool upper) {
  if (magnitude == 0) return "0";
  std::string digits;
  for (; magnitude != 0; magnitude /= base) {
    const int digit = std::abs(static_cast<int>(magnitude % base));
    digits += static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
  }
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// Separators into the leading digits of `body` ("1234.5" -> "1,234.5").
std::string grouped(const std::string& body, char separator, size_t group) {
  const size_t num_digits = std::min(body.find_first_not_of("0123456789abcdefABCDEF"), body.size());
  std::string out;
  for (size_t i = 0; i < num_digits; ++i) {
    if (i > 0 && (num_digits - i) % group == 0) out += separator;
    out += body[i];
  }
  return out + body.substr(num_digits);
}

// A zero fill counts its separators too: zeros go in front before the grouping.
std::string zero_filled_groups(std::string digits, const FormatSpec& spec, size_t prefix_size, size_t group) {
  const auto width = static_cast<size_t>(std::max(spec.width, Integer{0}));
  std::string body = grouped(digits, spec.grouping, group);
  if (spec.fill != U'0' || spec.align != '=') return body;
  while (body.size() + prefix_size < width) {
    digits.insert(digits.begin(), '0');
    body = grouped(digits, spec.grouping, group);
  }
  return body;
}

std::string print_real(const char* format, int precision, double magnitude) {
  const int size = std::snprintf(nullptr, 0, format, precision, magnitude);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), format, precision, magnitude);
  text.pop_back();
  return text;
}

// The digits of a finite magnitude in the style of spec.type.
std::string real_body(double magnitude, const FormatSpec& spec) {
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'f':
    case 'F':
      return print_real(spec.is_alternate ? "%#.*f" : "%.*f", precision, magnitude);
    case '%':
      return print_real("%.*f", precision, magnitude * 100) + "%";
    case 'e':
      return print_real(spec.is_alternate ? "%#.*e" : "%.*e", precision, magnitude);
    case 'E':
      return print_real(spec.is_alternate ? "%#.*E" : "%.*E", precision, magnitude);
    case 'G':
      return print_real(spec.is_alternate ? "%#.*G" : "%.*G", precision, magnitude);
    case 'g':
    case 'n':
      return print_real(spec.is_alternate ? "%#.*g" : "%.*g", precision, magnitude);
    default:
      break;
  }
  if (spec.precision < 0) return real_text(magnitude);
  std::string body = print_real("%.*g", std::max(spec.precision, 1), magnitude);
  if (body.find_first_of(".e") == std::string::npos) body += ".0";
  return body;
}

}  // namespace

void append_formatted(TextBuilder& out, std::string_view text, const FormatSpec& spec) {
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  append_padded(out, {}, text, spec, '<');
}

void append_formatted(TextBuilder& out, Integer value, const FormatSpec& spec) {
  const bool upper = spec.type == 'X';
  const int base = spec.type == 'x' || upper ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string digits = digits_in_base(value, base, upper);
  std::string prefix = sign_of(value < 0, spec);
  if (spec.is_alternate && base != 10) prefix += std::string("0") + spec.type;
  if (spec.min_digits > static_cast<int>(digits.size())) {
    out.heap().require_room(static_cast<size_t>(spec.min_digits));
    digits.insert(0, static_cast<size_t>(spec.min_digits) - digits.size(), '0');
  }
  if (spec.grouping != 0) {
    if (spec.width > 4096) out.heap().fail("a grouped number wider than 4096 characters is not supported");
    digits = zero_filled_groups(std::move(digits), spec, prefix.size(), base == 10 ? 3 : 4);
  }
  append_padded(out, prefix, digits, spec, '>');
}

void append_formatted(TextBuilder& out, double value, const FormatSpec& spec) {
  out.heap().require_room(static_cast<size_t>(std::max(spec.precision, 0)) + 512);
  const bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
  const std::string prefix = sign_of(std::signbit(value) && !std::isnan(value), spec);
  std::string body;
  if (std::isnan(value)) {
    body = upper ? "NAN" : "nan";
  } else if (std::isinf(value)) {
    body = upper ? "INF" : "inf";
  } else {
    body = real_body(std::abs(value), spec);
    if (spec.grouping != 0) {
      if (spec.width > 4096) out.heap().fail("a grouped number wider than 4096 characters is not supported");
      body = zero_filled_groups(std::move(body), spec, prefix.size(), 3);
    }
  }
  append_padded(out, prefix, body, spec, '>');
}

}  // namespace lockstep::serving::jinja
