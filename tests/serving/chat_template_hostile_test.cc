// Templates that want all time, all memory or all stack end in an error that says which limit they broke.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/chat_template/chat_template.h"

namespace lockstep::serving {
namespace {

// Small, so that the sanitized builds are quick too.
const RenderLimits kLimits{
    .max_steps = 1'000'000, .max_output_bytes = size_t{4} << 20, .max_memory_bytes = size_t{32} << 20};
const RenderLimits kManySteps{.max_steps = 20'000'000,
                              .max_output_bytes = kLimits.max_output_bytes,
                              .max_memory_bytes = kLimits.max_memory_bytes};

constexpr const char* kSteps = "steps (the limit on its work)";
constexpr const char* kMemory = "its limit is 33554432";
constexpr const char* kDepth = "nested deeper than";
constexpr const char* kOutput = "writes more than 4194304 bytes";

std::string repeat(std::string_view piece, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += piece;
  return out;
}

struct Hostile {
  std::string source;
  const char* message;
};

void expect_refused(const std::vector<Hostile>& cases, const RenderLimits& limits = kLimits) {
  for (const Hostile& hostile : cases) {
    SCOPED_TRACE(hostile.source.substr(0, 200));
    const auto start = std::chrono::steady_clock::now();
    const auto parsed = ChatTemplate::parse(hostile.source);
    const auto text = parsed ? parsed->render(Json::object(), limits) : Result<std::string>(parsed.error());
    ASSERT_FALSE(text.ok()) << text->substr(0, 200);
    EXPECT_THAT(text.error().message, testing::HasSubstr(hostile.message));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST(ChatTemplateHostile, WorkIsBounded) {
  const std::string text =
      "{% set x = 'a' * 1000000 %}{% set e = 'é' * 500000 %}{% set r = range(100000) | list %}";
  const std::string often = text + "{% for i in range(100000) %}";
  expect_refused({
      {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", kSteps},
      {"{% for a in range(1000) %}{% for b in range(100000) if false %}{% endfor %}{% endfor %}", kSteps},
      {often + "{% if 'b' in x %}{% endif %}{% endfor %}", kSteps},
      {often + "{% set y = e.upper() %}{% endfor %}", kSteps},
      {often + "{% set y = e[i] %}{% endfor %}", kSteps},
      {often + "{% set y = x.startswith(x) %}{% endfor %}", kSteps},
      {often + "{% set y = x.rsplit('b') %}{% endfor %}", kSteps},
      {often + "{% if -1 in r %}{% endif %}{% endfor %}", kSteps},
      {often + "{% set y = r | sort %}{% endfor %}", kSteps},
      {often + "{% set y = r | unique | list %}{% endfor %}", kSteps},
      {often + "{% set y = r | tojson %}{% endfor %}", kSteps},
      {often + "{% set y = r | select('odd') | list %}{% endfor %}", kSteps},
      {often + "{% if r == r + [] %}{% endif %}{% endfor %}", kSteps},
  });
}

TEST(ChatTemplateHostile, SharedValuesAreNotCopiedWithoutEnd) {
  const std::string doubled =
      "{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}"
      "{% set ns.y = (ns.y, ns.y) %}{% endfor %}";
  expect_refused({
      {doubled + "{{ ns.x }}", kSteps},
      {doubled + "{{ ns.x | tojson }}", kSteps},
      {doubled + "{{ ns.x == ns.y }}", kSteps},
      {doubled + "{{ {ns.x: 1}[ns.y] }}", kSteps},
      {doubled + "{{ [ns.x, ns.y] | sort }}", kSteps},
  });
}

TEST(ChatTemplateHostile, MemoryIsBounded) {
  expect_refused(
      {
          {"{{ 'x' * 10 ** 9 }}", kMemory},
          {"{{ 'x' * 10 ** 30 }}", kMemory},
          {"{{ [0] * 10 ** 9 }}", kMemory},
          {"{{ 'x'.center(10 ** 12) }}", kMemory},
          {"{{ 'x'.zfill(10 ** 12) }}", kMemory},
          {"{{ '\\t'.expandtabs(10 ** 12) }}", kMemory},
          {"{{ '%1000000000d' % 1 }}", kMemory},
          {"{{ '%.1000000000f' % 1 }}", kMemory},
          {"{{ '{:1000000000}'.format('a') }}", kMemory},
          {"{{ 'a\\nb' | indent(10 ** 12) }}", kMemory},
          {"{{ [[1]] | tojson(indent=10 ** 12) }}", kMemory},
          {"{{ [1] | batch(10 ** 12, 0) | list }}", kMemory},
          {"{{ [1] | slice(10 ** 12) | list }}", kMemory},
          {"{% set x = 'a' * 1000000 %}{{ x | replace('', x) }}", kMemory},
          {"{% set x = 'a' * 1000000 %}{{ x.join(x) }}", kMemory},
          {"{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           kMemory},
          {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           kMemory},
          {"{% macro m() %}{{ 'x' * 4000000 }}{{ m() }}{% endmacro %}{{ m() }}", kMemory},
          {"{% for a in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", kOutput},
          {"{{ range(10 ** 9) | list }}", "a range of more than 100000 items is too big"},
      },
      kManySteps);
}

TEST(ChatTemplateHostile, DepthOfRenderingIsBounded) {
  expect_refused({
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", kDepth},
      {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", kDepth},
      {"{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}", kDepth},
      {"{% macro m(x) %}{% if x %}{% filter upper %}{{ [m(x | list)] | join }}{% endfilter %}{% endif %}{% "
       "endmacro %}{{ m('a') }}",
       kDepth},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", kDepth},
      {"{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}",
       kDepth},
      {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", kDepth},
  });
}

TEST(ChatTemplateHostile, DepthOfSourceIsBounded) {
  expect_refused({
      {"{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}", kDepth},
      {"{{ " + repeat("[", 100000), kDepth},
      {"{{ " + repeat("{1:", 50000), kDepth},
      {"{{ x" + repeat("(x", 50000), kDepth},
      {"{{ x" + repeat("[x", 50000), kDepth},
      {"{{ " + repeat("not ", 100000) + "1 }}", kDepth},
      {"{{ " + repeat("-", 100000) + "1 }}", kDepth},
      {"{{ " + repeat("1 if 1 else ", 30000) + "1 }}", kDepth},
      {"{% set " + repeat("(", 100000), kDepth},
      {repeat("{% if 1 %}", 20000), kDepth},
      {repeat("{% for x in y %}", 20000), kDepth},
      {repeat("{% macro m() %}", 20000), kDepth},
      {"{{ 1" + repeat("+1", 100000) + " }}", "more than 400 levels of operators"},
      {"{{ 1" + repeat(" and 1", 80000) + " }}", "more than 400 levels of operators"},
      {"{{ x" + repeat(".x", 100000) + " }}", "more than 400 levels of operators"},
      {"{{ x" + repeat("()", 100000) + " }}", "more than 400 levels of operators"},
      {"{{ x" + repeat("|string", 50000) + " }}", "more than 400 levels of operators"},
  });
}

// What the depth limits allow must not overflow the stack either.
TEST(ChatTemplateHostile, TheDeepestThatIsAllowedRuns) {
  const std::vector<std::string> sources = {
      "{{ " + repeat("(", 100) + "1" + repeat(")", 100) + " }}",
      "{{ 1" + repeat("+1", 390) + " }}",
      "{{ x" + repeat("|string", 390) + " }}",
      repeat("{% if 1 %}", 100) + "1" + repeat("{% endif %}", 100),
      "{% macro m(n) %}{{ m(n - 1) if n else 1 }}{% endmacro %}{{ m(150) }}",
      "{% for x in [150] recursive %}{{ loop([x - 1]) if x else 1 }}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(250) %}{% set ns.x = [ns.x] %}{% endfor %}"
      "{{ ns.x | string | length }}{{ ns.x | tojson | length }}{{ ns.x == [ns.x] }}",
  };
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 200));
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const auto text = parsed->render(Json::object(), kLimits);
    EXPECT_TRUE(text.ok()) << text.error().message;
  }
}

TEST(ChatTemplateHostile, VariablesAreBoundedToo) {
  Json deep = 1;
  for (int i = 0; i < 2000; ++i) deep = Json::array({std::move(deep)});
  const auto parsed = ChatTemplate::parse("{{ x }}").value();
  const auto text = parsed.render({{"x", std::move(deep)}}, kLimits);
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message, testing::HasSubstr(kDepth));
  const auto large = parsed.render({{"x", std::string(size_t{40} << 20, 'x')}}, kLimits);
  ASSERT_FALSE(large.ok());
  EXPECT_THAT(large.error().message, testing::HasSubstr(kMemory));
}

// Values that hold themselves must not leak (the sanitized build looks).
TEST(ChatTemplateHostile, CyclesAreLetGo) {
  const auto parsed = ChatTemplate::parse(
      "{% set ns = namespace() %}{% set ns.me = [ns] %}{% set other = namespace(ns=ns) %}{% set ns.other = "
      "other %}"
      "{% macro m() %}{% set inner = namespace(m=m) %}{% set ns.inner = inner %}{% endmacro %}{{ m() }}{% "
      "set ns.m = m %}"
      "{% for x in [1, 2] %}{% set ns.loop = loop %}{{ loop.changed(loop, ns) }}{% endfor %}"
      "{{ ns.loop.changed(ns.loop) }}{{ ns.loop.index }}{{ ns.loop.last }}{{ ns.loop.nextitem }}");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->render(Json::object()).value(), "TrueFalseTrue2True");
}

}  // namespace
}  // namespace lockstep::serving
