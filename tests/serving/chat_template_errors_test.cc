// What a broken template or a conversation that does not fit says: the line, and what was expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/json.h"
#include "lockstep/serving/chat_template/chat_template.h"

namespace lockstep::serving {
namespace {

struct Broken {
  const char* source;
  int line;
  const char* message;  // a part of it
};

std::string line_text(int line) { return "chat template, line " + std::to_string(line) + ": "; }

TEST(ChatTemplateErrors, SyntaxErrorsNameTheLineAndWhatWasExpected) {
  const Broken cases[] = {
      {"a\n{{ 1 + }}", 2, "expected an expression, got '}}'"},
      {"{{ x", 1, "expected '}}' at the end of the output, got the end of the template"},
      {"{{ x y }}", 1, "expected '}}' at the end of the output, got 'y'"},
      {"\n\n{% if x %}\ny", 4,
       "unexpected end of the template; expected 'elif' or 'else' or 'endif' of the 'if' in line 3"},
      {"{% for a in b %}\n{% endif %}", 2,
       "the tag 'endif' does not belong here; expected 'endfor' or 'else' of the 'for' in line 1"},
      {"x\n{% endfor %}", 2, "the tag 'endfor' does not belong here"},
      {"{% iff x %}", 1, "there is no tag 'iff'"},
      {"{% for x of y %}", 1, "expected 'in' in the for, got 'of'"},
      {"{% for loop in y %}{% endfor %}", 1, "cannot assign to the special variable 'loop'"},
      {"{% set x %}", 1, "expected 'endset' of the 'set' in line 1"},
      {"{% set x + 1 %}", 1, "expected '=' or '%}' in the set, got '+'"},
      {"{% set 'x' = 1 %}", 1, "expected the name of a variable to assign to"},
      {"{% set true = 1 %}", 1, "cannot assign to 'true'"},
      {"{% if x %}a{% endif x %}", 1, "expected '%}' at the end of the tag, got 'x'"},
      {"{{ f(a=1, 2) }}", 1, "a positional argument cannot follow named ones"},
      {"{{ f(a=1, a=2) }}", 1, "the argument 'a' is given twice"},
      {"{{ [1, 2 }}", 1, "unexpected '}', expected ']'"},
      {"{{ {'a' 1} }}", 1, "expected ':' behind the key of the dict, got '1'"},
      {"{{ 'abc }}", 1, "this string is never closed; expected '"},
      {"{{ '\\x4' }}", 1, "the escape \\x in a string needs 2 hexadecimal digits"},
      {"{{ '\\ud800' }}", 1, "U+D800"},
      {"{{ '\\N{BULLET}' }}", 1, "\\N{...} is not supported"},
      {"a\n{# b\nc", 2, "this comment is never closed; expected #}"},
      {"a\n{% raw %} b\nc", 2, "this raw block is never closed; expected {% endraw %}"},
      {"{{ a ? b }}", 1, "unexpected character '?'"},
      {"{{ a.'b' }}", 1, "expected the name of an attribute, got the string 'b'"},
      {"{{ a[] }}", 1, "expected an index"},
      {"{{ a is b is c }}", 1, "there is no test 'b'"},
      {"{{ a is defined is string }}", 1, "tests cannot be chained"},
      {"{% macro m(a=1, b) %}{% endmacro %}", 1, "the parameter 'b' needs a default"},
      {"{% macro m(caller) %}{{ caller() }}{% endmacro %}", 1, "'caller'"},
      {"{% call x %}{% endcall %}", 1, "expected a call of a macro"},
      {"{% break %}", 1, "break and continue belong inside a for"},
      {"{% for x in y %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}", 1, "belong inside a for"},
      {"{{ 99999999999999999999999999999999999999999999 }}", 1, "128 bits"},
  };
  for (const Broken& broken : cases) {
    SCOPED_TRACE(broken.source);
    const auto parsed = ChatTemplate::parse(broken.source);
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(parsed.error().field, "chat_template");
    EXPECT_THAT(parsed.error().message, testing::StartsWith(line_text(broken.line)));
    EXPECT_THAT(parsed.error().message, testing::HasSubstr(broken.message));
  }
}

TEST(ChatTemplateErrors, WhatIsNotSupportedIsRefusedByNameBeforeRendering) {
  const Broken cases[] = {
      {"a\n{% include 'x' %}", 2, "the tag 'include' is not supported"},
      {"{% extends 'x' %}", 1, "the tag 'extends' is not supported"},
      {"{% block b %}{% endblock %}", 1, "the tag 'block' is not supported"},
      {"{% import 'x' as y %}", 1, "the tag 'import' is not supported"},
      {"{% from 'x' import y %}", 1, "the tag 'from' is not supported"},
      {"{% autoescape true %}{% endautoescape %}", 1, "the tag 'autoescape' is not supported"},
      {"{% if false %}\n{{ x | random }}{% endif %}", 2, "the filter 'random' is not supported"},
      {"{{ x | urlize }}", 1, "the filter 'urlize' is not supported"},
      {"{{ x | nope }}", 1, "there is no filter 'nope'"},
      {"{{ x is nope }}", 1, "there is no test 'nope'"},
      {"\n{{ lipsum() }}", 2, "the function 'lipsum' is not supported"},
      {"{% set c = cycler('a', 'b') %}", 1, "the function 'cycler' is not supported"},
  };
  for (const Broken& broken : cases) {
    SCOPED_TRACE(broken.source);
    const auto parsed = ChatTemplate::parse(broken.source);
    ASSERT_FALSE(parsed.ok());
    EXPECT_THAT(parsed.error().message, testing::StartsWith(line_text(broken.line) + broken.message));
  }
  // A name that the template gives itself is not Jinja's function.
  EXPECT_TRUE(ChatTemplate::parse("{% macro lipsum() %}x{% endmacro %}{{ lipsum() }}").ok());
}

TEST(ChatTemplateErrors, RuntimeErrorsNameTheLine) {
  const Broken cases[] = {
      {"a\n{{ missing.name }}", 2, "'missing' is undefined"},
      {"{{ d.zz.y }}", 1, "'dict object' has no attribute 'zz'"},
      {"{{ none.x.y }}", 1, "'None' has no attribute 'x'"},
      {"{{ [1][5] + 1 }}", 1, "list object has no element 5"},
      {"{% for x in 5 %}\n{% endfor %}", 1, "'int' object is not iterable"},
      {"\n{% for x in [1] %}\n{{ x + 'a' }}\n{% endfor %}", 3,
       "unsupported operand type(s) for +: 'int' and 'str'"},
      {"{{ 'a' + 1 }}", 1, "can only concatenate str (not \"int\") to str"},
      {"{{ 1 / 0 }}", 1, "division by zero"},
      {"{{ 1 < 'a' }}", 1, "'<' not supported between instances of 'int' and 'str'"},
      {"{{ d() }}", 1, "'dict' object is not callable"},
      {"{{ words.append(1) }}", 1, "access to attribute 'append' of 'list' object is unsafe."},
      {"{% set a, b = [1] %}", 1, "cannot unpack 1 values into 2 variables"},
      {"{% set d.x = 1 %}", 1, "'d' is no namespace, so 'd.x' cannot be assigned"},
      {"{{ undefined_thing | tojson }}", 1, "Object of type Undefined is not JSON serializable"},
      {"{{ {[]: 1} }}", 1, "unhashable type: 'list'"},
      {"{% macro m() %}\n{{ 1 + none }}\n{% endmacro %}\n\n{{ m() }}", 2,
       "unsupported operand type(s) for +: 'int' and 'NoneType'"},
      {"{% macro m(a) %}{% endmacro %}\n{{ m(b=1) }}", 2, "macro 'm' takes no keyword argument 'b'"},
      {"{{ 'x' | replace('a') }}", 1, "replace() needs at least 2 arguments (1 given)"},
      {"{{ 'x' | tojson(nope=1) }}", 1, "tojson() got an unexpected keyword argument 'nope'"},
      {"{{ range(10 ** 9) }}", 1, "a range of more than 100000 items is too big"},
      {"{{ '{}'.format() }}", 1, "Replacement index 0 out of range"},
      {"{{ 2 ** 200 }}", 1, "more than 128 bits"},
  };
  const Json variables = {{"d", {{"a", 1}}}, {"words", {"x"}}};
  for (const Broken& broken : cases) {
    SCOPED_TRACE(broken.source);
    const auto parsed = ChatTemplate::parse(broken.source);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const auto text = parsed->render(variables);
    ASSERT_FALSE(text.ok()) << text.value();
    EXPECT_EQ(text.error().field, "chat_template");
    EXPECT_THAT(text.error().message, testing::StartsWith(line_text(broken.line)));
    EXPECT_THAT(text.error().message, testing::HasSubstr(broken.message));
  }
}

TEST(ChatTemplateErrors, RaiseExceptionGivesTheTemplatesOwnWords) {
  const auto parsed = ChatTemplate::parse(
      "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('No ' ~ m.role ~ ' here!') }}{% "
      "endif %}"
      "{% endfor %}");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const auto text = parsed->render({{"messages", Json::array({{{"role", "wizard"}}})}});
  ASSERT_FALSE(text.ok()) << text.value();
  EXPECT_EQ(text.error().message, "No wizard here!");
  EXPECT_EQ(text.error().field, "messages");
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
}

TEST(ChatTemplateErrors, VariablesMustBeAnObject) {
  const auto parsed = ChatTemplate::parse("x").value();
  const auto text = parsed.render(Json::array({1}));
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message, testing::HasSubstr("must be an object, not array"));
}

TEST(ChatTemplateErrors, SourcesAreUtf8AndNotTooLarge) {
  EXPECT_THAT(ChatTemplate::parse("a\xff").error().message, testing::HasSubstr("not UTF-8"));
  EXPECT_THAT(ChatTemplate::parse(std::string(600'000, 'x')).error().message,
              testing::HasSubstr("600000 bytes"));
}

}  // namespace
}  // namespace lockstep::serving
