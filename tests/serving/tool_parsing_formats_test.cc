// Calls as the families write them, by the published templates and examples of each: DeepSeek-V3.2, GLM,
// Mistral, Llama and gpt-oss. Every text is read cut at every place.
#include <gtest/gtest.h>

#include "tests/serving/reply_reading.h"

namespace lockstep::serving {
namespace {

using tool_parsing::Format;

const Json kTools =
    *parse_json(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
  "properties": {"s": {"type": "string"}, "i": {"type": "integer"}, "o": {"type": "object"}}}}},
  {"type": "function", "function": {"name": "g"}}])");

Reply read_calls(Format format, const std::string& output) {
  ReplyOptions options{.tools = format, .tool_definitions = kTools};
  if (format == Format::kHarmony) options.reasoning = reasoning::Format::kHarmony;
  return read_in_every_way(output, options);
}

void expect_content(Format format, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const Reply reply = read_calls(format, text);
    EXPECT_TRUE(reply.calls.empty()) << text;
    EXPECT_EQ(reply.content, text);
  }
}

// Whatever stands in the output, how it was cut into tokens must not matter.
void expect_one_reading(Format format, const std::vector<std::string>& scraps) {
  std::mt19937 random(17);
  for (int round = 0; round < 120; ++round) {
    std::string output;
    for (size_t i = 1 + random() % 12; i > 0; --i) output += scraps[random() % scraps.size()];
    SCOPED_TRACE(output);
    EXPECT_NO_THROW(read_calls(format, output));
  }
}

std::string dsml(const std::string& body) {
  return "<｜DSML｜function_calls>\n" + body + "\n</｜DSML｜function_calls>";
}

TEST(DsmlCalls, ValuesAreTextOrJsonAsTheTagSays) {
  const Reply reply = read_calls(
      Format::kDsml,
      "I look.\n\n" + dsml("<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">12 "
                           "<b></｜DSML｜parameter>\n<｜DSML｜parameter name=\"i\" string=\"false\">12</"
                           "｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</"
                           "｜DSML｜invoke>"));
  EXPECT_EQ(reply.content, "I look.");
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", R"({"s": "12 <b>", "i": 12})", 1}, {"g", "{}", 1}}));
}

TEST(DsmlCalls, BrokenAndCutOff) {
  EXPECT_EQ(read_calls(Format::kDsml, dsml("<｜DSML｜invoke name=\"f\">hello</｜DSML｜invoke>")).calls,
            (std::vector<Call>{{"f", "{", 0}}));
  EXPECT_EQ(read_calls(Format::kDsml,
                       "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"i\" "
                       "string=\"false\">1</｜DSML｜parameter><｜DSML｜param")
                .calls,
            (std::vector<Call>{{"f", "{\"i\": 1", 0}}));
  expect_content(Format::kDsml,
                 {dsml("hello"), dsml(""), "<｜DSML｜function_calls>", "<｜DSML｜func",
                  dsml("<｜DSML｜invoke name=\"\">"), "<｜DSML｜function_calls>\n<｜DSML｜invoke na"});
  expect_one_reading(Format::kDsml,
                     {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜invoke name=\"f\">",
                      "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"s\" string=\"true\">",
                      "</｜DSML｜parameter>", "\n", "1", "text", "<｜DSML｜", " "});
}

TEST(GlmCalls, ValuesFollowTheSchema) {
  const Reply reply = read_calls(
      Format::kGlm,
      "Look:\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>12</arg_value>\n<arg_key>i</arg_key>\n"
      "<arg_value>12</arg_value>\n<arg_key>o</arg_key>\n<arg_value>{\"a\": [1]}</arg_value>\n</tool_call>\n"
      "<tool_call>g</tool_call>");
  EXPECT_EQ(reply.content, "Look:");
  EXPECT_EQ(reply.calls,
            (std::vector<Call>{{"f", R"({"s": "12", "i": 12, "o": {"a": [1]}})", 1}, {"g", "{}", 1}}));
}

TEST(GlmCalls, WithoutLineFeeds) {
  EXPECT_EQ(
      read_calls(Format::kGlm, "<tool_call>f<arg_key>i</arg_key><arg_value>1</arg_value></tool_call>").calls,
      (std::vector<Call>{{"f", "{\"i\": 1}", 1}}));
}

TEST(GlmCalls, BrokenAndCutOff) {
  EXPECT_EQ(read_calls(Format::kGlm, "<tool_call>f\n<arg_key>i</arg_key>\nx\n</tool_call>").calls,
            (std::vector<Call>{{"f", "{", 0}}));
  EXPECT_EQ(read_calls(Format::kGlm, "<tool_call>f\n<arg_key>i</arg_key>\n<arg_value>1").calls,
            (std::vector<Call>{{"f", "", 0}}));
  expect_content(Format::kGlm, {"<tool_call></tool_call>", "<tool_call>two words</tool_call>", "<tool_call>f",
                                "<tool_call>{\"name\": \"f\"}</tool_call>", "a </tool_call>"});
  expect_one_reading(Format::kGlm, {"<tool_call>", "</tool_call>", "f", "\n", "<arg_key>", "</arg_key>",
                                    "<arg_value>", "</arg_value>", "i", "1", " ", "<"});
}

TEST(MistralCalls, AnArrayOfObjects) {
  const Reply reply = read_calls(
      Format::kMistral,
      R"(Now. [TOOL_CALLS] [{"name": "f", "arguments": {"s": "]}"}}, {"name": "g", "arguments": {}}])");
  EXPECT_EQ(reply.content, "Now. ");
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", R"({"s": "]}"})", 1}, {"g", "{}", 1}}));
}

TEST(MistralCalls, ANameAndBareArguments) {
  const Reply reply =
      read_calls(Format::kMistral, R"([TOOL_CALLS]f[ARGS]{"i": 1}[TOOL_CALLS]g[CALL_ID]abc123XYZ[ARGS]{})");
  EXPECT_EQ(reply.content, "");
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", R"({"i": 1})", 1}, {"g", "{}", 1}}));
}

TEST(MistralCalls, BrokenAndCutOff) {
  EXPECT_EQ(read_calls(Format::kMistral, R"([TOOL_CALLS] [{"name": "f", "arguments": {"i": 1)").calls,
            (std::vector<Call>{{"f", "{\"i\": 1", 0}}));
  EXPECT_EQ(read_calls(Format::kMistral, R"([TOOL_CALLS]f[ARGS]{"i": 1)").calls,
            (std::vector<Call>{{"f", "{\"i\": 1", 0}}));
  // The marker is a token without text where the tokenizer holds it: it is not made up again.
  for (const std::string text : {"[TOOL_CALLS] [{\"nam\": 1}]", "[TOOL_CALLS] hello", "[TOOL_CALLS]",
                                 "[TOOL_CAL", "[TOOL_CALLS] [hello]", "[TOOL_CALLS] [{\"name\": \"f"}) {
    const Reply reply = read_calls(Format::kMistral, text);
    EXPECT_TRUE(reply.calls.empty()) << text;
    EXPECT_EQ(reply.content, text);
  }
  expect_one_reading(Format::kMistral,
                     {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[", "]", "{", "}", "\"name\": \"f\"",
                      "\"arguments\": {}", ", ", "f", " ", "\n", "text"});
}

TEST(LlamaCalls, TheWholeReplyIsObjects) {
  EXPECT_EQ(read_calls(Format::kLlama, R"({"name": "f", "parameters": {"i": 1}})").calls,
            (std::vector<Call>{{"f", R"({"i": 1})", 1}}));
  const Reply reply = read_calls(
      Format::kLlama,
      R"(<|python_tag|>{"name": "f", "parameters": {"s": ";"}}; {"type": "function", "name": "g", "parameters": {}})");
  EXPECT_EQ(reply.content, "");
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", R"({"s": ";"})", 1}, {"g", "{}", 1}}));
}

TEST(LlamaCalls, WhatIsNoCallIsContent) {
  expect_content(Format::kLlama, {R"({"name": "unknown", "parameters": {}})", R"({"a": 1})", "{",
                                  "Here: {\"name\": \"f\"}", "  ", "{}x", R"(print("hi"))"});
  expect_one_reading(Format::kLlama, {"{", "}", "\"name\": ", "\"f\"", ", ", "\"parameters\": ", "{\"i\": 1}",
                                      ";", " ", "<|python_tag|>", "text", "\n"});
}

TEST(HarmonyReplies, ChannelsSayWhatATextIs) {
  const Reply reply =
      read_calls(Format::kHarmony,
                 "<|channel|>analysis<|message|>Need "
                 "weather.<|end|><|start|>assistant<|channel|>commentary<|message|>I look "
                 "it up.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                 "<|constrain|>json<|message|>{\"i\": 1}"
                 "<|call|><|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>");
  EXPECT_EQ(reply.reasoning, "Need weather.");
  EXPECT_EQ(reply.content, "I look it up.");
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", R"({"i": 1})", 1}, {"g", "{}", 1}}));
  const Reply answer = read_calls(Format::kHarmony,
                                  "<|channel|>analysis<|message|>Easy.\n\nVery.<|end|><|start|>assistant<|"
                                  "channel|>final<|message|>4\n<|return|>");
  EXPECT_EQ(answer.reasoning, "Easy.\n\nVery.");
  EXPECT_EQ(answer.content, "4\n");
}

// The tokens that end a message also end the reply, and are then not part of the output.
TEST(HarmonyReplies, TheEndOfTheOutputEndsAMessage) {
  const std::string head = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>";
  EXPECT_EQ(read_calls(Format::kHarmony, head + "{\"i\": 1}").calls,
            (std::vector<Call>{{"f", R"({"i": 1})", 1}}));
  EXPECT_EQ(read_calls(Format::kHarmony, head + "{\"i\": 1").calls,
            (std::vector<Call>{{"f", R"({"i": 1)", 0}}));
  EXPECT_EQ(read_calls(Format::kHarmony, "<|channel|>final<|message|>Hi").content, "Hi");
  EXPECT_EQ(read_calls(Format::kHarmony, "<|channel|>analysis<|message|>Hm").reasoning, "Hm");
}

TEST(HarmonyReplies, WithoutAHeaderEverythingIsContent) {
  expect_content(Format::kHarmony, {"Hello.", "Two\n\nlines", std::string(600, 'x') + "\ny"});
  EXPECT_EQ(read_calls(Format::kHarmony, "<|channel|>commentary to=python<|message|>1+1").content, "1+1");
  expect_one_reading(Format::kHarmony, {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>",
                                        "<|return|>", "<|constrain|>", "assistant", "analysis", "final",
                                        "commentary", " ", "to=functions.f", "{}", "\n", "text"});
}

TEST(Formats, AllHaveAnExampleThatReadsBackAsACall) {
  for (int i = 1; i < tool_parsing::kNumFormats; ++i) {
    const auto format = static_cast<Format>(i);
    std::string example(tool_parsing::call_example(format));
    for (const auto& [word, text] : {std::pair("NAME", "f"), std::pair("ARGUMENTS", "{\"i\": 1}"),
                                     std::pair("KEY", "i"), std::pair("VALUE", "1"), std::pair("JSON", "1")})
      if (const size_t at = example.find(word); at != std::string::npos)
        example.replace(at, std::string_view(word).size(), text);
    const Reply reply = read_calls(format, example);
    ASSERT_EQ(reply.calls.size(), 1u) << example;
    EXPECT_EQ(reply.calls[0].name, "f");
    EXPECT_EQ(reply.calls[0].arguments, "{\"i\": 1}");
    EXPECT_EQ(reply.calls[0].num_ends, 1);
  }
}

}  // namespace
}  // namespace lockstep::serving
