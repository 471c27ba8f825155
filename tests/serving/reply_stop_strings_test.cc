#include <gtest/gtest.h>

#include "tests/serving/reply_reading.h"

namespace lockstep::serving {
namespace {

std::string until(std::string_view output, std::vector<std::string> stop) {
  return read_in_every_way(output, {.stop = std::move(stop)}).content;
}

TEST(StopStrings, EndTheContentBeforeThem) {
  EXPECT_EQ(until("one two three", {"two"}), "one ");
  EXPECT_EQ(until("one two three", {"four"}), "one two three");
  EXPECT_EQ(until("aaab", {"aab"}), "a");
  EXPECT_EQ(until("ababac", {"abac"}), "ab");
  EXPECT_EQ(until("x", {"x"}), "");
}

TEST(StopStrings, TheFirstToBeCompleteWins) {
  EXPECT_EQ(until("abcd", {"abcd", "bc"}), "a");
  EXPECT_EQ(until("abcd", {"abc", "bc"}), "");
}

TEST(StopStrings, HeldBackTextComesWhenTheReplyEnds) { EXPECT_EQ(until("wait: STO", {"STOP"}), "wait: STO"); }

TEST(StopStrings, AreHeldBackNoLongerThanNeeded) {
  StopStrings stop({"END"});
  EXPECT_EQ(stop.push(TracedText("a E")).text(), "a ");
  EXPECT_EQ(stop.push(TracedText("N")).text(), "");
  EXPECT_EQ(stop.push(TracedText("E")).text(), "EN");
  EXPECT_EQ(stop.push(TracedText("ND b")).text(), "");
  EXPECT_TRUE(stop.matched());
}

TEST(StopStrings, NotInReasoningNorInArguments) {
  ReplyOptions options{.reasoning = reasoning::Format::kThinkTags,
                       .start = reasoning::Place::kInside,
                       .tools = tool_parsing::Format::kTagged,
                       .stop = {"\n"}};
  Reply reply = read_in_every_way("a\nb\n</think>\n\nYes\nNo", options);
  EXPECT_EQ(reply.reasoning, "a\nb");
  EXPECT_EQ(reply.content, "Yes");
  reply = read_in_every_way("a</think><tool_call>\n{\"name\": \"f\", \"arguments\": {\n}}\n</tool_call>",
                            options);
  EXPECT_EQ(reply.calls, (std::vector<Call>{{"f", "{\n}", 1}}));
}

TEST(StopStrings, WaitForTheFewestTokens) {
  ReplyParser parser({.stop = {"b"}, .min_tokens = 2});
  Reply reply;
  for (const char* text : {"a", "b", "c", "b", "d"}) add(parser.push(1000, TracedText(text)), reply);
  EXPECT_TRUE(parser.ended());
  EXPECT_EQ(parser.num_tokens(), 4);
  EXPECT_EQ(reply.content, "abc");
}

TEST(TracedText, TokensGoWithTheirFirstByte) {
  TracedText text("ab", 0);
  text.append(TracedText("", 1));
  text.append(TracedText("cd", 2));
  text.append(TracedText("", 3));
  const TracedText front = text.take(3);
  EXPECT_EQ(front.text(), "abc");
  EXPECT_EQ(front.starts(), (std::vector<TracedText::Start>{{0, 0}, {2, 1}, {2, 2}}));
  EXPECT_EQ(text.text(), "d");
  EXPECT_EQ(text.starts(), (std::vector<TracedText::Start>{{1, 3}}));
}

TEST(TracedText, DroppedBytesTakeTheTokensThatLieWhollyInThem) {
  TracedText text("\n", 0);
  text.append(TracedText("\n\nx", 1));
  text.append(TracedText("y", 2));
  text.drop(3);
  EXPECT_EQ(text.text(), "xy");
  EXPECT_EQ(text.starts(), (std::vector<TracedText::Start>{{0, 1}, {1, 2}}));
}

}  // namespace
}  // namespace lockstep::serving
