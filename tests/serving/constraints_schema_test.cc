// Which schemas are enforced, which are refused and by what name.
#include "lockstep/serving/constraints/schema_check.h"

#include <gtest/gtest.h>

#include <chrono>

#include <regex>

#include "lockstep/serving/constraints/regex_check.h"

namespace lockstep::serving::constraints {
namespace {

Json parsed(const std::string& text) { return parse_json(text).value(); }

std::string refusal(const std::string& schema) {
  const auto checked = enforceable_schema(parsed(schema), "s");
  return checked.ok() ? "" : checked.error().message;
}

Json made(const std::string& schema) {
  const auto checked = enforceable_schema(parsed(schema), "s");
  EXPECT_TRUE(checked.ok()) << checked.error().message;
  return checked.ok() ? *checked : Json();
}

TEST(SchemaCheck, KeepsWhatIsEnforced) {
  for (
      const char* const schema :
      {R"({"type":"string","minLength":1,"maxLength":5})", R"({"type":"string","pattern":"[a-z]+"})",
       R"({"type":"integer","exclusiveMaximum":10,"minimum":0})", R"({"enum":["a",1,null]})",
       R"({"const":{"a":1}})",
       R"({"type":"array","prefixItems":[{"type":"null"}],"items":{"type":"string"},"minItems":1,"maxItems":3})",
       R"({"type":["string","null"]})", R"({"anyOf":[{"type":"string"},{"type":"null"}]})",
       R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false})"})
    EXPECT_EQ(made(schema), parsed(schema));
}

TEST(SchemaCheck, ObjectsWithPropertiesGetNoOthers) {
  EXPECT_EQ(made(R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"string"}})"),
            parsed(R"({"type":"object","properties":{"a":{}},"additionalProperties":false})"));
  EXPECT_EQ(made(R"({"type":"object","additionalProperties":{"type":"string"}})"),
            parsed(R"({"type":"object","additionalProperties":{"type":"string"}})"));
  EXPECT_EQ(
      made(R"({"type":"object","required":["b"],"additionalProperties":{"type":"null"}})"),
      parsed(
          R"({"type":"object","properties":{"b":{"type":"null"}},"required":["b"],"additionalProperties":false})"));
}

TEST(SchemaCheck, FormatsArePatterns) {
  const auto matches = [](const std::string& format, const std::string& text) {
    const Json schema = made(R"({"type":"string","format":")" + format + "\"}");
    return std::regex_match(text, std::regex(schema["pattern"].get<std::string>()));
  };
  for (const auto& [format, text] : {std::pair("date", "2024-02-28"),
                                     {"date", "1999-12-31"},
                                     {"time", "23:59:59Z"},
                                     {"time", "00:00:00+05:30"},
                                     {"date-time", "2024-04-30T10:00:00-01:00"},
                                     {"uuid", "123e4567-e89b-12d3-a456-426614174000"},
                                     {"ipv4", "255.0.10.199"}})
    EXPECT_TRUE(matches(format, text)) << text;
  for (const auto& [format, text] : {std::pair("date", "2024-02-30"),
                                     {"date", "2024-04-31"},
                                     {"date", "2024-13-01"},
                                     {"time", "24:00:00Z"},
                                     {"time", "10:00:00"},
                                     {"ipv4", "01.2.3.4"},
                                     {"ipv4", "256.1.1.1"},
                                     {"ipv4", "1.2.3"},
                                     {"uuid", "123e4567"}})
    EXPECT_FALSE(matches(format, text)) << text;
}

TEST(SchemaCheck, DropsWhatAssertsNothing) {
  EXPECT_EQ(made(R"({"$schema":"x","title":"t","description":"d","default":1,"type":"null"})"),
            parsed(R"({"type":"null"})"));
  EXPECT_EQ(made("true"), Json::object());
  EXPECT_EQ(made(R"({"properties":{}})")["type"], "object");
  EXPECT_EQ(made(R"({"minLength":2})")["type"], "string");
}

TEST(SchemaCheck, FollowsReferencesOfTheRoot) {
  const std::string tree =
      R"({"$defs":{"n":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}}}},)"
      R"("$ref":"#/$defs/n"})";
  EXPECT_EQ(made(tree)["$ref"], "#/$defs/n");
  EXPECT_EQ(refusal(R"({"$ref":"#/$defs/absent"})"),
            "'s.$ref' is \"#/$defs/absent\": it must be \"#\" or name an entry of the root's $defs");
  EXPECT_NE(refusal(R"({"$ref":"https://example.org/schema"})"), "");
  for (const char* deeper : {"#/$defs/a/enum/", "#/$defs/a/enum/99999999999999999999", "#/$defs/", "#/$defs"})
    EXPECT_NE(refusal(R"({"$defs":{"a":{"enum":[1]}},"$ref":")" + std::string(deeper) + "\"}"), "") << deeper;
}

TEST(SchemaCheck, AReferenceMustConsumeSomething) {
  const std::string what = "leads back to itself without a value in between";
  EXPECT_EQ(refusal(R"({"$ref":"#"})"), "'s.$ref' " + what);
  EXPECT_EQ(
      refusal(
          R"({"$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}},"type":"null"})"),
      "'s.$defs.a.anyOf[1].$ref' " + what);
  EXPECT_EQ(refusal(R"({"type":"array","items":{"$ref":"#"}})"), "");
}

TEST(SchemaCheck, OneSchemaOfAllOfStandsForIt) {
  EXPECT_EQ(made(R"({"$defs":{"n":{"type":"null"}},"allOf":[{"$ref":"#/$defs/n"}]})"),
            parsed(R"({"$defs":{"n":{"type":"null"}},"$ref":"#/$defs/n"})"));
}

TEST(SchemaCheck, NamesWhatWouldNotBeEnforced) {
  const std::string what = " is not supported: it would not be enforced";
  EXPECT_EQ(refusal(R"({"type":"array","uniqueItems":true})"), "'s.uniqueItems'" + what);
  EXPECT_EQ(refusal(R"({"type":"object","properties":{"a":{"type":"array","contains":{}}}})"),
            "'s.properties.a.contains'" + what);
  for (const char* const keyword :
       {"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties",
        "propertyNames", "minProperties", "maxProperties", "multipleOf", "unevaluatedProperties",
        "minContains", "contentEncoding", "x"})
    EXPECT_EQ(refusal(fmt::format(R"({{"type":"object","{}":1}})", keyword)),
              fmt::format("'s.{}'{}", keyword, what));
  EXPECT_EQ(refusal(R"({"anyOf":[{"type":"null"}],"type":"null"})"),
            "'s.type' beside 'anyOf' is not supported");
  EXPECT_EQ(refusal(R"({"enum":["a"],"type":"integer"})"), "'s.type' beside 'enum' is not supported");
  EXPECT_EQ(refusal(R"({"allOf":[{},{}]})"), "'s.allOf' is supported only with one schema in it");
  EXPECT_EQ(refusal(R"({"oneOf":[{"type":"string"},{"type":"string"}]})"),
            "'s.oneOf' is supported only where the schemas have different types; use anyOf");
  EXPECT_EQ(refusal(R"({"oneOf":[{"type":"string"},{"type":"null"}]})"), "");
  EXPECT_EQ(refusal(R"({"type":"string","format":"uri"})"),
            "'s.format' is \"uri\": supported are date, time, date-time, uuid and ipv4");
  for (const char* const pattern : {R"(a\"b)", R"(é)", R"(\\n)", R"(\\\\)", R"(\\x41)"})
    EXPECT_NE(refusal(fmt::format(R"({{"type":"string","pattern":"{}"}})", pattern))
                  .find("holds a quote, a backslash"),
              std::string::npos)
        << pattern;
  EXPECT_EQ(refusal(R"({"type":"string","pattern":"a\\.b\\d"})"), "");
  EXPECT_EQ(refusal(R"({"type":"string","pattern":"a","minLength":1})"),
            "'s' has more than one of pattern, format and a length: give one");
}

TEST(SchemaCheck, NamesWhatIsNoSchema) {
  EXPECT_EQ(refusal("3"), "'s' is number, not a schema");
  EXPECT_EQ(refusal("false"), "'s' is false, which no value can fulfil");
  EXPECT_EQ(refusal(R"({"type":"text"})"), "'s.type' is \"text\", not the name of a type");
  EXPECT_EQ(refusal(R"({"type":"array","items":[{}]})"), "'s.items' is an array: give prefixItems");
  EXPECT_EQ(refusal(R"({"type":"array","minItems":3,"maxItems":2})"),
            "'s.maxItems' is 2, less than the least of 3");
  EXPECT_EQ(refusal(R"({"type":"array","maxItems":5000})"), "'s.maxItems' is 5000: supported are up to 4096");
  EXPECT_EQ(refusal(R"({"type":"array","maxItems":-1})"), "'s.maxItems' must be a whole number of 0 or more");
  EXPECT_EQ(refusal(R"({"type":"object","required":["a"],"additionalProperties":false})"),
            "'s.required' names \"a\", which additionalProperties forbids");
  EXPECT_EQ(refusal(R"({"enum":[]})"), "'s.enum' must be an array of one or more values");
  std::string deep = "{}";
  for (int i = 0; i < 40; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_NE(refusal(deep).find("is nested deeper than 32 levels"), std::string::npos);
  EXPECT_NE(refusal(R"({"description":")" + std::string(70'000, 'x') + R"("})")
                .find("more than the limit of 65536"),
            std::string::npos);
}

// The library's automaton for strings errs with quantifiers inside of groups: (b[0-9]+)? lets 7 through.
TEST(RegexCheck, PatternsOfStringsAreOfTheKindThatIsMatchedRight) {
  const auto made = [](std::string_view pattern) {
    const auto rewritten = pattern_of_json_string(pattern, "p");
    return rewritten.ok() ? *rewritten : rewritten.error().message;
  };
  EXPECT_EQ(made("^[a-z]{2,3}$"), "[a-z]{2,3}");
  EXPECT_EQ(made("a?b+?(?:c|d)*"), "a{0,1}b+(?:c|d)*");
  EXPECT_EQ(made("(\\+1)?[0-9?*]{3}"), "(\\+1){0,1}[0-9?*]{3}");
  EXPECT_EQ(made("ab|cd"), "ab|cd");
  EXPECT_EQ(made("(b[0-9]+)?"),
            "'p' of 10 bytes holds a quantifier inside of a group, which is not supported here");
  EXPECT_EQ(
      made("a+|b"),
      "'p' of 4 bytes holds alternatives and a quantifier outside of a group, which is not supported here");
}

// For tools that are not strict: what cannot be enforced goes, and nothing else.
TEST(SchemaCheck, LoosenedSchemasKeepTheRest) {
  const Json loosened = loosened_schema(parsed(R"({"type": "object", "minProperties": 1, "properties": {
    "url": {"type": "string", "format": "uri"}, "a.format": {"type": "string", "format": "hostname"},
    "list": {"type": "array", "items": {"type": "integer", "multipleOf": 3}, "uniqueItems": true},
    "never": false, "one": {"anyOf": [{"type": "string", "contentEncoding": "x"}, {"type": "null"}]},
    "properties": {"type": "number", "minimum": 1, "multipleOf": 2}},
    "required": ["url", "list"], "if": {}})"));
  EXPECT_EQ(loosened, made(R"({"type": "object", "properties": {
    "url": {"type": "string"}, "a.format": {"type": "string"},
    "list": {"type": "array", "items": {"type": "integer"}}, "never": {},
    "one": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "properties": {"type": "number", "minimum": 1}},
    "required": ["url", "list"]})"));
  EXPECT_EQ(loosened_schema(parsed(R"({"not": {}})")), Json::object());
  EXPECT_EQ(loosened_schema(Json(5)), Json::object());
  const Json whole =
      parsed(R"({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})");
  EXPECT_EQ(loosened_schema(whole), made(to_text(whole)));
}

// As many properties as fit, and as many places to leave out as may be: one look at all of them finds them.
TEST(SchemaCheck, LooseningManyPlacesIsQuick) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  auto& properties = schema["properties"].get_ref<Json::object_t&>();
  for (int i = 0; i < 4500; ++i)
    properties.emplace_back(std::to_string(i), i % 20 == 0 ? Json{{"format", "uri"}} : Json::object());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) {
    const Json loosened = loosened_schema(schema);
    ASSERT_EQ(loosened["properties"].size(), 4500U);
    EXPECT_FALSE(loosened["properties"]["4480"].contains("format"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  for (int i = 0; i < 300; ++i) schema["properties"][std::to_string(i)] = {{"format", "uri"}};
  EXPECT_EQ(loosened_schema(schema), Json::object()) << "of so much nothing is left";
}

TEST(RegexCheck, NamesWhatIsReadOtherwise) {
  const auto said = [](std::string_view pattern) {
    const Status checked = check_regex(pattern, "regex");
    return checked.ok() ? "" : checked.error().message;
  };
  for (const char* const pattern :
       {"", "a", "^a$", "[^a-z]+", "(?:a|b){2,3}", "\\d+\\.\\w*", "[]]", "[\\]x]", "a+?"})
    EXPECT_EQ(said(pattern), pattern == std::string("[]]")
                                 ? "'regex' holds an empty class at byte 0, which is not supported"
                                 : "")
        << pattern;
  EXPECT_EQ(said("a^b"), "'regex' holds ^ that is not at the start at byte 1, which is not supported");
  EXPECT_EQ(said("a$b"), "'regex' holds $ that is not at the end at byte 1, which is not supported");
  EXPECT_EQ(said("(?=a)"),
            "'regex' holds a group that is neither plain nor (?: at byte 0, which is not supported");
  EXPECT_EQ(said("(a)\\1"), "'regex' holds this escape at byte 4, which is not supported");
  for (const char* other : {"[\\^a]{2}", "\\x{41}", "\\ud83d\\ude00"}) EXPECT_NE(said(other), "") << other;
  EXPECT_EQ(said("[a\\^]\\x41\\ud7ff"), "");
  EXPECT_EQ(said("\\bx"), "'regex' holds this escape at byte 1, which is not supported");
  EXPECT_EQ(said("a{1,5000}"), "'regex' holds a count above 4096 at byte 1, which is not supported");
  EXPECT_EQ(said("[a"), "'regex' holds a class without its ] at byte 2, which is not supported");
}

}  // namespace
}  // namespace lockstep::serving::constraints
