#pragma once
// Python's three ways of formatting: "%s" % x, "{}".format(x), and the format specification that the latter
// uses.
#include <string_view>

#include "lockstep/serving/chat_template/arguments.h"
#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

// The union of what a printf conversion and a {:spec} can say.
struct FormatSpec {
  char32_t fill = U' ';
  char align = 0;             // '<', '>', '^', '=' (between sign and digits); 0 the type's own
  char sign = '-';            // '-' only negative, '+' always, ' ' a space for positive
  bool is_alternate = false;  // '#'
  char grouping = 0;          // ',' or '_' between groups of digits
  Integer width = 0;
  int precision = -1;   // -1: not given
  int min_digits = -1;  // printf's precision of an integer
  char type = 0;        // 0: not given
};

void append_formatted(TextBuilder& out, std::string_view text, const FormatSpec& spec);
void append_formatted(TextBuilder& out, Integer value, const FormatSpec& spec);
void append_formatted(TextBuilder& out, double value, const FormatSpec& spec);

// format % arguments: a tuple gives several, a dict the named ones.
Value format_printf(Heap& heap, const Value& format, const Value& arguments);
// format.format(*positional, **keywords).
Value format_braces(Heap& heap, const Value& format, const CallArguments& arguments);

}  // namespace lockstep::serving::jinja
