#include <gtest/gtest.h>

#include "tests/serving/reply_reading.h"

namespace lockstep::serving {
namespace {

const std::string kCallsBegin = "<｜tool▁calls▁begin｜>", kCallsEnd = "<｜tool▁calls▁end｜>";
const std::string kCallBegin = "<｜tool▁call▁begin｜>", kCallEnd = "<｜tool▁call▁end｜>",
                  kSep = "<｜tool▁sep｜>";

// The forms of DeepSeek-V3 and R1, and of V3.1.
std::string fenced(const std::string& name, const std::string& arguments) {
  return kCallBegin + "function" + kSep + name + "\n```json\n" + arguments + "\n```" + kCallEnd;
}
std::string bare(const std::string& name, const std::string& arguments) {
  return kCallBegin + name + kSep + arguments + kCallEnd;
}

Reply read_calls(const std::string& output) {
  return read_in_every_way(output, {.tools = tool_parsing::Format::kDeepSeek});
}

TEST(DeepSeekCalls, OneFencedCall) {
  const Reply reply =
      read_calls(kCallsBegin + fenced("calculator", R"({"expression": "925 - 715"})") + kCallsEnd);
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0], (Call{"calculator", R"({"expression": "925 - 715"})", 1}));
  EXPECT_EQ(reply.content, "");
}

TEST(DeepSeekCalls, SeveralFencedCallsBehindContent) {
  const Reply reply =
      read_calls("I will look.\n\n" + kCallsBegin + fenced("get_weather", R"({"city": "Oslo"})") + "\n" +
                 fenced("get_time", R"({"city": "Lima"})") + kCallsEnd);
  EXPECT_EQ(reply.content, "I will look.");
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[0], (Call{"get_weather", R"({"city": "Oslo"})", 1}));
  EXPECT_EQ(reply.calls[1], (Call{"get_time", R"({"city": "Lima"})", 1}));
}

TEST(DeepSeekCalls, BareCallsOfV31) {
  const Reply reply =
      read_calls(kCallsBegin + bare("get_weather", R"({"city": "Oslo"})") + bare("noop", "{}") + kCallsEnd);
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[0], (Call{"get_weather", R"({"city": "Oslo"})", 1}));
  EXPECT_EQ(reply.calls[1], (Call{"noop", "{}", 1}));
}

TEST(DeepSeekCalls, BareCallOfAFunctionThatIsCalledFunction) {
  const Reply reply = read_calls(kCallsBegin + bare("function", R"( {"a": 1})") + kCallsEnd);
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0].name, "function");
  EXPECT_EQ(reply.calls[0].num_ends, 1);
}

TEST(DeepSeekCalls, FencesInsideArgumentsStay) {
  const std::string arguments = "{\"code\": \"```py\\nx\\n```\",\n\n \"tail\": \"``` \"}";
  const Reply reply = read_calls(kCallsBegin + fenced("run", arguments) + bare("run", arguments) + kCallsEnd);
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[0], (Call{"run", arguments, 1}));
  EXPECT_EQ(reply.calls[1], (Call{"run", arguments, 1}));
}

TEST(DeepSeekCalls, NoArgumentsAreAnEmptyObject) {
  const Reply reply = read_calls(kCallsBegin + fenced("now", "") + bare("now", "") + kCallsEnd);
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[0], (Call{"now", "{}", 1}));
  EXPECT_EQ(reply.calls[1], (Call{"now", "{}", 1}));
}

TEST(DeepSeekCalls, ArgumentsThatAreNoObjectHaveNoEnd) {
  const Reply reply = read_calls(kCallsBegin + fenced("f", R"({"a": )") + fenced("g", "[1]") + kCallsEnd);
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[0], (Call{"f", R"({"a":)", 0}));
  EXPECT_EQ(reply.calls[1], (Call{"g", "[1]", 0}));
}

TEST(DeepSeekCalls, CutOffInsideTheArguments) {
  const std::string head = kCallsBegin + kCallBegin + "function" + kSep + "f\n```json\n";
  EXPECT_EQ(read_calls(head + "{\"a\": \"x").calls.at(0), (Call{"f", "{\"a\": \"x", 0}));
  EXPECT_EQ(read_calls(head + "{\"a\": \"x\n``").calls.at(0), (Call{"f", "{\"a\": \"x\n``", 0}));
  EXPECT_EQ(read_calls(head).calls.at(0), (Call{"f", "", 0}));
  // Only frame is missing: the call itself is whole.
  EXPECT_EQ(read_calls(head + "{\"a\": 1}\n``").calls.at(0), (Call{"f", "{\"a\": 1}", 1}));
}

TEST(DeepSeekCalls, WhatIsNoCallIsContent) {
  EXPECT_EQ(read_calls("a" + kCallsBegin + "b" + kCallsEnd + "c").content, "abc");
  EXPECT_EQ(read_calls(kCallBegin + "calc").content, "calc");
  EXPECT_EQ(read_calls(kCallBegin + kSep + "{}" + kCallEnd).content, "{}");
  EXPECT_EQ(read_calls(kCallBegin + "function" + kSep + "\n```json\n{}\n```" + kCallEnd).content,
            "function\n```json\n{}\n```");
  const std::string endless(600, 'x');
  EXPECT_EQ(read_calls(kCallBegin + endless + kSep + "{}" + kCallEnd).content, endless + "{}");
  EXPECT_EQ(read_calls(kCallBegin + "function" + kSep + endless + "\n{}" + kCallEnd).content,
            "function" + endless + "\n{}");
}

TEST(DeepSeekCalls, ContentBehindCallsIsKept) {
  const Reply reply = read_calls(kCallsBegin + bare("f", "{}") + kCallsEnd + "\nDone.\n");
  EXPECT_EQ(reply.content, "Done.\n");
  EXPECT_EQ(reply.calls.size(), 1U);
}

TEST(DeepSeekCalls, StrayMarkersNeverReachTheContent) {
  EXPECT_EQ(read_calls("a" + kCallEnd + "b" + kSep + "c" + kCallsEnd + "d").content, "abcd");
}

TEST(DeepSeekCalls, PlainTextIsUntouched) {
  for (const std::string text : {"Hello\n\nworld \n", "\n<｜tool▁", "｜ and ▁ are letters", ""})
    EXPECT_EQ(read_calls(text).content, text);
}

TEST(DeepSeekCalls, TheNameComesBeforeTheArgumentsAndTheyComeInPieces) {
  ReplyOptions options{.tools = tool_parsing::Format::kDeepSeek};
  options.markers = markers_for(options, MarkerTokens::kHeld);
  ReplyParser parser(options);
  std::vector<DeltaKind> kinds;
  int num_pieces = 0;
  for (const Piece& piece :
       cut(kCallsBegin + fenced("f", R"({"a": [1, 2, 3]})") + kCallsEnd, options.markers, [] { return 4; }))
    for (const Delta& delta : parser.push(piece.token_id, TracedText(piece.text))) {
      num_pieces += delta.kind == DeltaKind::kCallArguments;
      if (kinds.empty() || kinds.back() != delta.kind) kinds.push_back(delta.kind);
    }
  EXPECT_EQ(kinds, (std::vector{DeltaKind::kCallBegin, DeltaKind::kCallArguments, DeltaKind::kCallEnd}));
  EXPECT_GE(num_pieces, 3);
}

TEST(DeepSeekCalls, OneCallAtMostEndsTheReply) {
  ReplyOptions options{.tools = tool_parsing::Format::kDeepSeek, .max_calls = 1};
  const Reply reply =
      read_in_every_way(kCallsBegin + bare("f", "{}") + bare("g", "{}") + kCallsEnd + "x", options);
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", "{}", 1}}));
  EXPECT_EQ(reply.content, "");
}

// Random strings of markers and scraps: no cut changes the reply, and no text is lost or doubled.
TEST(DeepSeekCalls, AnyOutputReadsTheSameHoweverItIsCut) {
  std::mt19937 random(7);
  const std::vector<std::string> scraps = {
      kCallsBegin, kCallsEnd,    kCallBegin, kCallEnd, kSep,   "function", "\n",      " ",    "```",
      "```json\n", "{\"a\": 1}", "{",        "}",      "name", "é｜",      "<｜tool", "\"x\""};
  for (int round = 0; round < 150; ++round) {
    std::string output;
    const size_t length = 1 + random() % 14;
    for (size_t i = 0; i < length; ++i) output += scraps[random() % scraps.size()];
    SCOPED_TRACE(output);
    EXPECT_NO_THROW(read_calls(output));
  }
}

}  // namespace
}  // namespace lockstep::serving
