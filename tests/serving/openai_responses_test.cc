// Responses: items as messages, what is remembered and for whom, and the events of a stream.
#include <gtest/gtest.h>

#include "lockstep/serving/openai/response_store.h"
#include "lockstep/serving/openai/responses_items.h"
#include "lockstep/serving/openai/responses_request.h"
#include "tests/serving/scripted_engine.h"

namespace lockstep::serving {
namespace {

constexpr const char* kPath = "/v1/responses";

Json parse(const char* text) { return parse_json(text).value(); }

Result<Json> messages_of(const char* items) {
  auto read = openai::read_items(Json::array(), parse(items), "input");
  if (!read) return read.error();
  return std::move(read->messages);
}

TEST(ResponsesItems, ATurnOfTheAssistantIsOneMessage) {
  const auto messages = messages_of(R"([
    {"role": "user", "content": "What is 1 + 2 and 3 + 4?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "two sums"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I work it out.", "annotations": []}]},
    {"type": "function_call", "call_id": "a", "name": "sum", "arguments": "{\"x\":1}"},
    {"type": "function_call", "call_id": "b", "name": "sum", "arguments": "{\"x\":3}"},
    {"type": "function_call_output", "call_id": "a", "output": "3"},
    {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "7"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "done"}]}])");
  ASSERT_TRUE(messages.ok()) << messages.error().message;
  EXPECT_EQ(*messages, parse(R"([
    {"role": "user", "content": "What is 1 + 2 and 3 + 4?"},
    {"role": "assistant", "content": "I work it out.", "reasoning_content": "two sums", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "sum", "arguments": "{\"x\":1}"}},
      {"id": "b", "type": "function", "function": {"name": "sum", "arguments": "{\"x\":3}"}}]},
    {"role": "tool", "content": "3", "tool_call_id": "a"},
    {"role": "tool", "content": "7", "tool_call_id": "b"},
    {"role": "assistant", "content": "", "reasoning_content": "done"}])"));
}

// Text after calls is a message of its own: in one it would stand before them.
TEST(ResponsesItems, OrderIsKept) {
  const auto messages = messages_of(
      R"([{"type": "function_call", "call_id": "a", "name": "f"}, {"role": "assistant", "content": "x"},
                {"role": "assistant", "content": "y"}])");
  ASSERT_TRUE(messages.ok());
  ASSERT_EQ(messages->size(), 3U);
  EXPECT_TRUE((*messages)[0].contains("tool_calls"));
  EXPECT_EQ((*messages)[1]["content"], "x");
  EXPECT_EQ((*messages)[2]["content"], "y");
}

TEST(ResponsesItems, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> table[] = {
      {R"([5])", "input[0]"},
      {R"([{}])", "input[0].type"},
      {R"([{"role": "user"}])", "input[0].content"},
      {R"([{"role": "tool", "content": "x"}])", "input[0].role"},
      {R"([{"role": "user", "content": [{"type": "input_file"}]}])", "input[0].content[0].type"},
      {R"([{"role": "user", "content": "x"}, {"type": "function_call", "call_id": "a"}])", "input[1].name"},
      {R"([{"type": "item_reference", "id": "x"}])", "input[0].type"},
      {R"([{"type": "web_search_call", "id": "x"}])", "input[0].type"}};
  for (const auto& [items, field] : table) {
    const auto messages = messages_of(items);
    ASSERT_FALSE(messages.ok()) << items;
    EXPECT_EQ(messages.error().field, field);
  }
}

TEST(ResponseStore, TheOneUsedLeastRecentlyGoesFirst) {
  openai::ResponseStore store({.max_responses = 2});
  store.put("a", "me", {"A", ""});
  store.put("b", "me", {"B", ""});
  EXPECT_EQ(store.get("a", "me")->response, "A");
  store.put("c", "me", {"C", ""});
  EXPECT_FALSE(store.get("b", "me").has_value());
  EXPECT_TRUE(store.get("a", "me").has_value());
  EXPECT_TRUE(store.get("c", "me").has_value());
}

TEST(ResponseStore, BytesAreBounded) {
  openai::ResponseStore store({.max_responses = 1000, .max_bytes = 10000});
  for (int i = 0; i < 100; ++i) {
    store.put(std::to_string(i), "", {std::string(1000, 'x'), std::string(1000, 'y')});
    EXPECT_LE(store.num_bytes(), 10000U);
  }
  EXPECT_EQ(store.num_responses(), 4U);
  store.put("large", "", {std::string(20000, 'x'), ""});
  EXPECT_FALSE(store.get("large", "").has_value());
  EXPECT_EQ(store.num_responses(), 4U);
  for (int i = 96; i < 100; ++i) EXPECT_TRUE(store.remove(std::to_string(i), ""));
  EXPECT_EQ(store.num_bytes(), 0U);
}

TEST(ResponseStore, OthersSeeNothing) {
  openai::ResponseStore store({});
  store.put("a", "me", {"A", "[]"});
  store.put("a", "you", {"B", "[]"});
  EXPECT_FALSE(store.get("a", "you").has_value());
  EXPECT_FALSE(store.remove("a", "you"));
  EXPECT_EQ(store.get("a", "me")->response, "A");
}

// Who fills the store pushes out what is their own.
TEST(ResponseStore, RoomIsMadeByWhoHasMost) {
  openai::ResponseStore store({.max_responses = 1000, .max_bytes = 10000});
  store.put("mine", "me", {std::string(1000, 'x'), ""});
  for (int i = 0; i < 50; ++i) store.put(std::to_string(i), "you", {std::string(1000, 'x'), ""});
  EXPECT_TRUE(store.get("mine", "me").has_value());
  EXPECT_TRUE(store.get("49", "you").has_value());
  store.put("large", "you", {std::string(9500, 'x'), ""});
  EXPECT_TRUE(store.get("mine", "me").has_value());
  openai::ResponseStore few({.max_responses = 4});
  few.put("mine", "me", {"x", ""});
  for (int i = 0; i < 50; ++i) few.put(std::to_string(i), "you", {"x", ""});
  EXPECT_TRUE(few.get("mine", "me").has_value());
  EXPECT_TRUE(few.get("49", "you").has_value());
  EXPECT_EQ(few.num_responses(), 4U);
}

// A document takes many times the room of its text: only what was read stays, as text.
TEST(Responses, KeepOnlyWhatWasRead) {
  const Json body = parse(R"({"input": [
    {"role": "user", "content": [{"type": "input_text", "text": "Hi", "junk": [[], []]}], "junk": {"a": [[]]}},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "3", "junk": 1}]})");
  const ScriptedEngine engine([](const runtime::Request&) { return std::string("x"); });
  const auto request = openai::read_responses_request(body, Json::array(), engine.model());
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(parse(request->items.c_str()), parse(R"([
    {"type": "message", "role": "user", "content": "Hi"}, {"type": "reasoning", "content": "hm"},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "3"}])"));
  const auto next = openai::read_responses_request(parse(R"({"input": "Go on"})"),
                                                   parse(request->items.c_str()), engine.model());
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->chat.messages.size(), 4U) << "two of the assistant's are one turn";
}

TEST(Responses, WhatIsRepeatedIsBounded) {
  const ServedScript served("x");
  const auto refused = [&](const char* field, const char* key, const Json& value) {
    const auto response = served.ask("POST", kPath, to_text(Json{{"input", "Hi"}, {key, value}}));
    EXPECT_EQ(response.status, 400) << field;
    EXPECT_EQ(ServedScript::json(response)["error"]["param"], field);
  };
  Json pairs = Json::object();
  for (int i = 0; i < 17; ++i) pairs[std::to_string(i)] = "x";
  refused("metadata", "metadata", pairs);
  refused("metadata.a", "metadata", {{"a", std::string(513, 'x')}});
  refused("metadata.a", "metadata", {{"a", Json::array()}});
  refused("metadata", "metadata", {{std::string(65, 'k'), "x"}});
  refused("safety_identifier", "safety_identifier", std::string(513, 'x'));
  refused("prompt_cache_key", "prompt_cache_key", std::string(513, 'x'));
  refused("text", "text", {{"junk", std::string(size_t{2} << 20, 'x')}});
  refused("reasoning", "reasoning", {{"junk", std::string(size_t{2} << 20, 'x')}});
  pairs.erase("16");
  EXPECT_EQ(served.ask("POST", kPath, to_text(Json{{"input", "Hi"}, {"metadata", pairs}})).status, 200);
}

std::vector<Json> events_of(const http::RawResponse& response) {
  std::vector<Json> events;
  for (std::string_view text = response.body; !text.empty();) {
    const size_t end = text.find("\n\n");
    const size_t data = text.find("\ndata: ");
    if (!text.starts_with("event: ") || end == std::string_view::npos || data > end)
      throw std::runtime_error("not an event: " + std::string(text));
    events.push_back(parse_json(text.substr(data + 7, end - data - 7)).value());
    EXPECT_EQ(events.back()["type"], text.substr(7, data - 7));
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    text.remove_prefix(end + 2);
  }
  return events;
}

TEST(Responses, EventsComeInTheOrderOfThePublishedOnes) {
  const ServedScript served("hm\n</think>\n\nThe answer is 7.");
  const auto events =
      events_of(served.ask("POST", kPath, R"({"input": "What is 3 + 4?", "stream": true, "store": false})"));
  std::vector<std::string> types;
  for (const Json& event : events)
    if (const std::string type = event["type"]; types.empty() || types.back() != type) types.push_back(type);
  EXPECT_EQ(
      types,
      (std::vector<std::string>{
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.reasoning_text.delta", "response.reasoning_text.done",
          "response.content_part.done", "response.output_item.done", "response.output_item.added",
          "response.content_part.added", "response.output_text.delta", "response.output_text.done",
          "response.content_part.done", "response.output_item.done", "response.completed"}));
  EXPECT_EQ(events.back()["response"]["output"][1]["content"][0]["text"], "The answer is 7.");
}

TEST(Responses, AFailureInTheMiddleIsTheLastEvent) {
  ServedScript served("hm...");
  served.engine.fail_after("rank 2 is gone", 3);
  const auto events = events_of(served.ask("POST", kPath, R"({"input": "What is 3 + 4?", "stream": true})"));
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"]["message"], "rank 2 is gone");
  const std::string id = events.back()["response"]["id"];
  EXPECT_EQ(served.ask("GET", std::string(kPath) + "/" + id).status, 404);
  // Not streamed it is an ordinary error.
  EXPECT_EQ(served.ask("POST", kPath, R"({"input": "What is 3 + 4?"})").status, 500);
}

TEST(Responses, AConversationGoesOnFromWhatIsStored) {
  const ServedScript served("hm\n</think>\n\nThe answer is 7.");
  const Json first = served.post(kPath, {{"input", "What is 3 + 4?"}, {"instructions", "Be brief."}});
  served.post(kPath, {{"input", "Why?"}, {"previous_response_id", first["id"]}});
  // The instructions are not carried over; the reasoning is, and this template prints it.
  EXPECT_EQ(served.engine.tokenizer().decode(served.engine.request(1).prompt, SpecialTokens::kKeep),
            "<｜begin▁of▁sentence｜><｜User｜>What is 3 + 4?<｜Assistant｜><think>\nhm\n</think>\n\n"
            "The answer is 7.<｜end▁of▁sentence｜>"
            "<｜User｜>Why?<｜Assistant｜><think>\n");
}

}  // namespace
}  // namespace lockstep::serving
