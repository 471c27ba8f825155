#include "lockstep/serving/reasoning/reasoning_splitter.h"

#include <gtest/gtest.h>

#include "tests/serving/reply_reading.h"

namespace lockstep::serving {
namespace {

using reasoning::Place;
using reasoning::starts_inside;

ReplyOptions thinking(Place start, tool_parsing::Format tools = tool_parsing::Format::kNone) {
  return {.reasoning = reasoning::Format::kThinkTags, .start = start, .tools = tools};
}

TEST(StartsInside, LooksAtTheEndOfThePrompt) {
  EXPECT_EQ(starts_inside("<|im_start|>assistant\n<think>\n"), Place::kInside);
  EXPECT_EQ(starts_inside("<｜Assistant｜><think>"), Place::kInside);
  EXPECT_EQ(starts_inside("<｜Assistant｜>"), Place::kOutside);
  EXPECT_EQ(starts_inside("<|im_start|>assistant\n<think>\n\n</think>\n\n"), Place::kOutside);
  EXPECT_EQ(starts_inside("say <think><|im_end|>\n<|im_start|>assistant\n"), Place::kOutside);
  EXPECT_EQ(starts_inside(" \n"), Place::kOutside);
  EXPECT_EQ(starts_inside(""), Place::kOutside);
}

TEST(Reasoning, PromptOpenedIt) {
  const Reply reply =
      read_in_every_way("2 + 2 = 4\n\nso 4\n</think>\n\nThe answer is 4.\n", thinking(Place::kInside));
  EXPECT_EQ(reply.reasoning, "2 + 2 = 4\n\nso 4");
  EXPECT_EQ(reply.content, "The answer is 4.\n");
}

TEST(Reasoning, ModelOpensIt) {
  const Reply reply = read_in_every_way("\n<think>\nhm\n</think>\n\nYes.", thinking(Place::kOutside));
  EXPECT_EQ(reply.reasoning, "hm");
  EXPECT_EQ(reply.content, "Yes.");
}

TEST(Reasoning, ModelRepeatsThePromptsTag) {
  const Reply reply = read_in_every_way("<think>\nhm</think>Yes.", thinking(Place::kInside));
  EXPECT_EQ(reply.reasoning, "hm");
  EXPECT_EQ(reply.content, "Yes.");
}

TEST(Reasoning, EndsAtTheFirstClosingTagOnly) {
  const Reply reply = read_in_every_way("a</think>b</think>c<think>d", thinking(Place::kInside));
  EXPECT_EQ(reply.reasoning, "a");
  EXPECT_EQ(reply.content, "b</think>c<think>d");
}

TEST(Reasoning, NeverEndedIsAllReasoningWithItsLastLineFeeds) {
  const Reply reply = read_in_every_way("let me see\n\n", thinking(Place::kInside));
  EXPECT_EQ(reply.reasoning, "let me see\n\n");
  EXPECT_EQ(reply.content, "");
}

TEST(Reasoning, EmptyReasoning) {
  const Reply reply = read_in_every_way("\n\n</think>\n\nHi", thinking(Place::kInside));
  EXPECT_EQ(reply.reasoning, "");
  EXPECT_EQ(reply.content, "Hi");
}

TEST(Reasoning, WithoutTagsEverythingIsContent) {
  for (const std::string_view text : {"\n\n  Hi\n", "a < b <thin", "x <think> y </think> z", "\n", ""}) {
    const Reply reply = read_in_every_way(text, thinking(Place::kOutside));
    EXPECT_EQ(reply.content, text);
    EXPECT_EQ(reply.reasoning, "");
  }
}

TEST(Reasoning, WithoutTheFormatTagsAreText) {
  EXPECT_EQ(read_in_every_way("<think>a</think>b", {}).content, "<think>a</think>b");
}

TEST(Reasoning, ToolMarkersInsideAreNoCalls) {
  const Reply reply = read_in_every_way(
      "maybe <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n</think>\n\nno",
      thinking(Place::kInside, tool_parsing::Format::kTagged));
  EXPECT_EQ(reply.reasoning, "maybe <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(reply.content, "no");
  EXPECT_TRUE(reply.calls.empty());
}

TEST(Reasoning, TokensOfReasoningAreCountedWithoutTheTags) {
  ReplyOptions options = thinking(Place::kOutside);
  options.markers = markers_for(options, MarkerTokens::kHeld);
  ReplyParser parser(options);
  parser.push(0, TracedText("<think>"));
  for (const char* text : {"\n", "a", "b", "\n"}) parser.push(1000, TracedText(text));
  parser.push(1, TracedText("</think>"));
  for (const char* text : {"\n\n", "c"}) parser.push(1000, TracedText(text));
  parser.finish();
  EXPECT_EQ(parser.num_tokens(), 8);
  EXPECT_EQ(parser.num_reasoning_tokens(), 4);
}

}  // namespace
}  // namespace lockstep::serving
