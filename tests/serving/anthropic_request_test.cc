// Anthropic's messages as chats: what the template gets to see.
#include <gtest/gtest.h>

#include "lockstep/serving/anthropic/message_request.h"
#include "tests/serving/scripted_engine.h"

namespace lockstep::serving::anthropic {
namespace {

Result<openai::ChatRequest> read(const char* body, Purpose purpose = Purpose::kAnswer) {
  const Json parsed = parse_json(body).value();
  return read_message_request(parsed, purpose, {.name = "m", .vocab = 100, .context_length = 100});
}

TEST(AnthropicRequest, BlocksBecomeMessages) {
  const auto request =
      read(R"({"max_tokens": 7, "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    "messages": [{"role": "user", "content": "What?"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "t2", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "1", "is_error": true},
        {"type": "tool_result", "tool_use_id": "t2"}, {"type": "text", "text": "And?"}]}]})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->messages, parse_json(R"([
    {"role": "system", "content": "a\nb"}, {"role": "user", "content": "What?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [
       {"type": "function", "id": "t1", "function": {"name": "f", "arguments": {"a": 1}}},
       {"type": "function", "id": "t2", "function": {"name": "f", "arguments": {}}}], "reasoning_content": "hm"},
    {"role": "tool", "content": "1", "tool_call_id": "t1"}, {"role": "tool", "content": "", "tool_call_id": "t2"},
    {"role": "user", "content": "And?"}])")
                                   .value());
  EXPECT_EQ(request->options.max_tokens, 7);
}

TEST(AnthropicRequest, ChoicesAndThinking) {
  const char* form = R"({"max_tokens": 7, "messages": [{"role": "user", "content": "x"}],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}], )";
  const auto with = [&](const std::string& more) { return *read((form + more + "}").c_str()); };
  EXPECT_EQ(with(R"("stop_sequences": ["z"])").options.stop, (std::vector<std::string>{"z"}));
  const auto any = with(R"("tool_choice": {"type": "any", "disable_parallel_tool_use": true})");
  EXPECT_EQ(any.tools.demand, openai::ToolOptions::Demand::kMustCall);
  EXPECT_TRUE(any.tools.one_call_at_most);
  EXPECT_EQ(any.tools.tools[0]["function"]["name"], "f");
  EXPECT_TRUE(with(R"("tool_choice": {"type": "none"})").tools.tools.is_null());
  EXPECT_EQ(with(R"("tool_choice": {"type": "tool", "name": "f"})").tools.callable.size(), 1U);
  EXPECT_EQ(
      with(R"("thinking": {"type": "enabled", "budget_tokens": 2000})").template_kwargs["enable_thinking"],
      true);
  EXPECT_EQ(with(R"("thinking": {"type": "disabled"})").template_kwargs["thinking"], false);
  EXPECT_TRUE(with(R"("thinking": {"type": "adaptive"})").template_kwargs.empty());
  EXPECT_EQ(with(R"("output_config": {"effort": "low"})").template_kwargs["reasoning_effort"], "low");
}

TEST(AnthropicRequest, CountingNeedsNoLimit) {
  const char* body = R"({"messages": [{"role": "user", "content": "x"}]})";
  EXPECT_TRUE(read(body, Purpose::kCount).ok());
  EXPECT_EQ(read(body).error().field, "max_tokens");
}

TEST(AnthropicErrors, TypesFollowTheStatus) {
  const ServedScript served("x", {.api_keys = {"key"}});
  const std::pair<std::string, const char*> table[] = {{"", "authentication_error"},
                                                       {"x-api-key: key\r\n", "invalid_request_error"}};
  for (const auto& [headers, type] : table) {
    const Json error = ServedScript::json(served.ask("POST", "/v1/messages", "{}", headers));
    EXPECT_EQ(error["type"], "error");
    EXPECT_EQ(error["error"]["type"], type);
  }
}

TEST(AnthropicErrors, AFailureInTheMiddleIsTheLastEvent) {
  ServedScript served("hm...");
  served.engine.fail_after("rank 2 is gone", 3);
  const auto response =
      served.ask("POST", "/v1/messages",
                 R"({"max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(response.status, 200);
  const std::string last = R"(event: error
data: {"type":"error","error":{"type":"api_error","message":"rank 2 is gone"}})";
  EXPECT_TRUE(response.body.ends_with(last + "\n\n")) << response.body;
  EXPECT_EQ(response.body.find("message_stop"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::serving::anthropic
