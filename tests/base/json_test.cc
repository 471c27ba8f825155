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

TEST(ParseJson, SaysInItsOwnWordsWhatStandsWhereAndWhatWasExpected) {
  const std::pair<const char*, const char*> table[] = {
      {"", "byte 1 (line 1, column 1): the text ends where a value was expected"},
      {"{\"a\":1,}", "byte 8 (line 1, column 8): '}' stands where a key in double quotes was expected"},
      {"{\"a\" 1}", "the number 1 stands where ':' was expected"},
      {"{\"a\":1 \"b\":2}", "a string stands where ',' or '}' was expected"},
      {"{1:2}", "the number 1 stands where a key in double quotes or '}' was expected"},
      {"{\n \"a\": [1,\n  2 3]}",
       "byte 17 (line 3, column 5): the number 3 stands where ',' or ']' was expected"},
      {"[1,]", "']' stands where a value was expected"},
      {"[}", "'}' stands where a value or ']' was expected"},
      {"[1,2", "the text ends where ',' or ']' was expected"},
      {"{\"a\":", "the text ends where a value was expected"},
      {"1 2", "the number 2 stands where the end of the text was expected"},
      {"{} null", "null stands where the end of the text was expected"},
      {"[tru]", "a word is none of true, false and null"},
      {"{'a': 1}", "the character ' stands where a key in double quotes or '}' was expected"},
      {"\"abc", "the text ends within a string"},
      {"\"a\nb\"", "a string holds the control character 0x0a, which must be written as an escape"},
      {"\"a\\x\"", "a string holds an escape that JSON does not have"},
      {"\"a\xff\"", "a string holds byte 0xff where UTF-8 has none such"},
      {"[-]", "a digit is missing in a number"},
      {"[1e999]", "the number 1e999 is too large"},
      {"[\"a]}\", {\"b\": \"}\"}, ]", "']' stands where a value was expected"}};
  for (const auto& [text, words] : table) {
    const auto parsed = parse_json(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.error().message.find(words), std::string::npos) << text << "\n"
                                                                     << parsed.error().message;
    EXPECT_EQ(parsed.error().message.find("exception"), std::string::npos) << parsed.error().message;
  }
}

// Every beginning of a text, and every byte of it replaced: whatever is wrong has words.
TEST(ParseJson, WordsForWhateverIsWrong) {
  const std::string text = R"({"a":[1,-2.5e3,true,null,"x\u00e9\n",[],{}],"b":{"c":"d"}})";
  for (size_t at = 0; at < text.size(); ++at) {
    EXPECT_FALSE(parse_json(text.substr(0, at)).ok());
    for (int byte = 0; byte < 256; ++byte) {
      std::string broken = text;
      broken[at] = static_cast<char>(byte);
      const auto parsed = parse_json(broken);
      if (parsed.ok()) continue;
      EXPECT_EQ(parsed.error().message.find("parse error"), std::string::npos) << parsed.error().message;
    }
  }
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
