#include "lockstep/base/json.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ParseJson, KeepsKeyOrder) {
  const auto parsed = parse_json(R"({"b":1,"a":[true,null]})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(to_text(*parsed), R"({"b":1,"a":[true,null]})");
}

TEST(ParseJson, NamesTheByteWhereTheTextStopsBeingJson) {
  const auto parsed = parse_json(R"({"a":1,})");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.error().message.find("byte 8"), std::string::npos) << parsed.error().message;
}

TEST(ParseJson, RefusesDepthSizeAndDuplicateKeys) {
  EXPECT_TRUE(parse_json(std::string(128, '[') + std::string(128, ']')).ok());
  EXPECT_FALSE(parse_json(std::string(129, '[') + std::string(129, ']')).ok());
  EXPECT_FALSE(parse_json(std::string(1000000, '[')).ok());
  EXPECT_FALSE(parse_json("12345", {.max_bytes = 4}).ok());
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})").ok());
  EXPECT_TRUE(parse_json(R"({"a":{"a":1}})").ok());
}

TEST(ParseJson, BuildsEveryKindOfValue) {
  const char* text =
      R"({"a":[1,-2,3.5,true,false,null,"x\u00e9",[],{}],"b":{"c":{"d":18446744073709551615}}})";
  const auto parsed = parse_json(text);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, Json::parse(text));
  EXPECT_EQ(*parse_json("7"), Json(7));
  EXPECT_FALSE(parse_json("").ok());
  EXPECT_FALSE(parse_json("1 2").ok());
  EXPECT_FALSE(parse_json("[1,2").ok());
}

// A hostile object must not take quadratic time: this one would take minutes.
TEST(ParseJson, AnObjectOfManyKeysTakesLinearTime) {
  std::string text = "{";
  for (int key = 0; key < 300000; ++key) text += fmt::format("{}\"k{}\":{}", key == 0 ? "" : ",", key, key);
  const auto parsed = parse_json(text + "}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->size(), 300000u);
  EXPECT_EQ(parsed->back(), 299999);
}

TEST(ToText, ReplacesInvalidUtf8) { EXPECT_EQ(to_text(Json("a\xff")), "\"a\xEF\xBF\xBD\""); }

}  // namespace
}  // namespace lockstep
