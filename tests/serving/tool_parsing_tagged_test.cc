#include <gtest/gtest.h>

#include "tests/serving/reply_reading.h"

namespace lockstep::serving {
namespace {

const Json kTools =
    *parse_json(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
  "properties": {"s": {"type": "string"}, "i": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"},
  "a": {"type": "array"}, "o": {"type": "object"}, "n": {"type": ["integer", "null"]},
  "u": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}}}])");

Reply read_calls(const std::string& output) {
  return read_in_every_way(output, {.tools = tool_parsing::Format::kTagged, .tool_definitions = kTools});
}

std::string tagged(const std::string& body) { return "<tool_call>\n" + body + "\n</tool_call>"; }

TEST(JsonCalls, OneCall) {
  const Reply reply =
      read_calls(tagged(R"({"name": "calc", "arguments": {"expression": "1 + 2", "deep": [{"}": "]"}]}})"));
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0], (Call{"calc", R"({"expression": "1 + 2", "deep": [{"}": "]"}]})", 1}));
  EXPECT_EQ(reply.content, "");
}

TEST(JsonCalls, SeveralCallsBehindContent) {
  const Reply reply = read_calls("Two calls.\n" + tagged(R"({"name": "f", "arguments": {"i": 1}})") + "\n" +
                                 tagged(R"({"name":"g","arguments":{}})"));
  EXPECT_EQ(reply.content, "Two calls.");
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", R"({"i": 1})", 1}, {"g", "{}", 1}}));
}

TEST(JsonCalls, MembersInAnyOrder) {
  const Reply reply =
      read_calls(tagged(R"({"id": 7, "arguments": {"a": "\"}"}, "name": "f", "more": null})"));
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", R"({"a": "\"}"})", 1}}));
}

TEST(JsonCalls, ArgumentsAsAStringOfJsonOrMissing) {
  EXPECT_EQ(read_calls(tagged(R"({"name": "f", "arguments": "{\"a\": 1}"})")).calls,
            (std::vector<Call>{{"f", R"({"a": 1})", 1}}));
  EXPECT_EQ(read_calls(tagged(R"({"name": "f"})")).calls, (std::vector<Call>{{"f", "{}", 1}}));
}

TEST(JsonCalls, CutOff) {
  EXPECT_EQ(read_calls("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1").calls,
            (std::vector<Call>{{"f", "{\"a\": 1", 0}}));
  EXPECT_EQ(read_calls("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}").calls,
            (std::vector<Call>{{"f", "{\"a\": 1}", 1}}));
  EXPECT_EQ(read_calls("<tool_call>\n{\"name\": \"f").content, "<tool_call>\n{\"name\": \"f");
}

TEST(JsonCalls, WhatIsNoCallIsContent) {
  for (const std::string text :
       {"<tool_call>\nhello\n</tool_call>", "<tool_call>{\"nam\": 1}</tool_call> x",
        "<tool_call></tool_call>", "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
        "<tool_call>{]</tool_call>", "a < b\n\n", "<tool_cal"}) {
    const Reply reply = read_calls(text);
    EXPECT_TRUE(reply.calls.empty()) << text;
    EXPECT_EQ(reply.content, text);
  }
}

TEST(FunctionCalls, ValuesFollowTheSchema) {
  const Reply reply =
      read_calls(tagged("<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=i>\n12\n</"
                        "parameter>\n<parameter=b>\nTrue\n</parameter>\n"
                        "<parameter=a>\n[1, "
                        "\"x\"]\n</parameter>\n<parameter=n>\nNone\n</parameter>\n<parameter=u>\n5\n</"
                        "parameter>\n</function>"));
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0],
            (Call{"f", R"({"s": "12", "i": 12, "b": true, "a": [1, "x"], "n": null, "u": "5"})", 1}));
}

TEST(FunctionCalls, StringsAreRawTextOverSeveralLines) {
  const Reply reply =
      read_calls(tagged("<function=f>\n<parameter=s>\n\nif a < b:\n  \"x\"\n\n</parameter>\n</function>"));
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(parse_json(reply.calls[0].arguments).value()["s"], "\nif a < b:\n  \"x\"\n");
}

TEST(FunctionCalls, SpaceAroundOneOfAFewValuesIsLayout) {
  const Json tools =
      *parse_json(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"e": {"enum": ["a", " b", 3]}}}}}])");
  for (const auto& [text, value] :
       {std::pair("\n a\n\n", "\"a\""), {" b", "\" b\""}, {"  3 ", "3"}, {" c ", "\" c \""}}) {
    const Reply reply =
        read_in_every_way(tagged("<function=f><parameter=e>" + std::string(text) + "</parameter></function>"),
                          {.tools = tool_parsing::Format::kTagged, .tool_definitions = tools});
    ASSERT_EQ(reply.calls.size(), 1U);
    EXPECT_EQ(reply.calls[0].arguments, "{\"e\": " + std::string(value) + "}");
  }
}

TEST(FunctionCalls, ValuesThatDoNotFitTheirTypeStayStrings) {
  const Reply reply = read_calls(tagged("<function=f>\n<parameter=i>\ntwelve\n</parameter>\n</function>"));
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", R"({"i": "twelve"})", 1}}));
}

TEST(FunctionCalls, WithoutParametersOrClosingTag) {
  EXPECT_EQ(read_calls(tagged("<function=f>\n</function>")).calls, (std::vector<Call>{{"f", "{}", 1}}));
  EXPECT_EQ(read_calls(tagged("<function=f>\n<parameter=i>\n1\n</parameter>")).calls,
            (std::vector<Call>{{"f", R"({"i": 1})", 1}}));
}

TEST(FunctionCalls, BrokenOnesHaveNoEnd) {
  EXPECT_EQ(read_calls(tagged("<function=f>\nhello</function>")).calls, (std::vector<Call>{{"f", "{", 0}}));
  EXPECT_EQ(read_calls("<tool_call><function=f><parameter=i>1</parameter><parameter=s>ab").calls,
            (std::vector<Call>{{"f", "{\"i\": 1", 0}}));
  EXPECT_EQ(read_calls(tagged("<function=>")).content, tagged("<function=>"));
}

TEST(TaggedCalls, AnyOutputReadsTheSameHoweverItIsCut) {
  std::mt19937 random(11);
  const std::vector<std::string> scraps = {"<tool_call>",
                                           "</tool_call>",
                                           "{\"name\": \"f\"",
                                           ", \"arguments\": ",
                                           "{\"a\": \"}\"}",
                                           "}",
                                           "{",
                                           "[",
                                           "\"",
                                           "\\",
                                           "\n",
                                           " ",
                                           "<function=f>",
                                           "</function>",
                                           "<parameter=i>",
                                           "1",
                                           "</parameter>",
                                           "text",
                                           "</tool",
                                           ",",
                                           ":",
                                           "null"};
  for (int round = 0; round < 200; ++round) {
    std::string output;
    const size_t length = 1 + random() % 14;
    for (size_t i = 0; i < length; ++i) output += scraps[random() % scraps.size()];
    SCOPED_TRACE(output);
    EXPECT_NO_THROW(read_calls(output));
  }
}

}  // namespace
}  // namespace lockstep::serving
